define internal void @kernel_0(ptr %context, i64 %begin, i64 %end) #0 {
entry:
  %v6 = alloca float, align 64
  %v13 = alloca <4 x float>, align 64
  %v1 = getelementptr i64, ptr %context, i64 2
  %externals = load ptr, ptr %v1, align 8, !invariant.load !1
  %v2 = getelementptr i64, ptr %context, i64 3
  %p.b0 = load ptr, ptr %v2, align 8, !invariant.load !1
  %v3 = getelementptr i64, ptr %context, i64 4
  %p.b1 = load ptr, ptr %v3, align 8, !invariant.load !1
  br label %loop4
loop4:
  %v5 = phi i64 [ %begin, %entry ], [ %v30, %done18 ]
  store float 0x0000000000000000, ptr %v6
  %v9 = mul nsw i64 %v5, 100
  store <4 x float> splat (float 0x0000000000000000), ptr %v13
  br label %loop7
loop7:
  %v8 = phi i64 [ 0, %loop4 ], [ %v16, %loop7 ]
  %v10 = add nsw i64 %v9, %v8
  %v11 = getelementptr inbounds float, ptr %p.b0, i64 %v10
  %v12 = load <4 x float>, ptr %v11, align 4, !invariant.load !1
  %v14 = load <4 x float>, ptr %v13
  %v15 = fadd <4 x float> %v14, %v12
  store <4 x float> %v15, ptr %v13
  %v16 = add nuw nsw i64 %v8, 4
  %v17 = icmp slt i64 %v16, 100
  br i1 %v17, label %loop7, label %done18
done18:
  %v19 = load <4 x float>, ptr %v13
  %v20 = shufflevector <4 x float> %v19, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v21 = shufflevector <4 x float> %v19, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v22 = fadd <2 x float> %v20, %v21
  %v23 = extractelement <2 x float> %v22, i64 0
  %v24 = extractelement <2 x float> %v22, i64 1
  %v25 = fadd float %v23, %v24
  %v26 = load float, ptr %v6
  %v27 = fadd float %v26, %v25
  store float %v27, ptr %v6
  %v28 = load float, ptr %v6
  %v29 = getelementptr inbounds float, ptr %p.b1, i64 %v5
  store float %v28, ptr %v29, align 4
  %v30 = add nuw nsw i64 %v5, 1
  %v31 = icmp slt i64 %v30, %end
  br i1 %v31, label %loop4, label %done32
done32:
  ret void
}
