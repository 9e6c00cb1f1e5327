define internal void @kernel_0(ptr %context, i64 %begin, i64 %end) #0 {
entry:
  %v6 = alloca float, align 64
  %v10 = alloca <64 x float>, align 64
  %v1 = getelementptr i64, ptr %context, i64 2
  %externals = load ptr, ptr %v1, align 8, !invariant.load !1
  %v2 = getelementptr i64, ptr %context, i64 3
  %p.b0 = load ptr, ptr %v2, align 8, !invariant.load !1
  %v3 = getelementptr i64, ptr %context, i64 4
  %p.b1 = load ptr, ptr %v3, align 8, !invariant.load !1
  br label %loop4
loop4:
  %v5 = phi i64 [ %begin, %entry ], [ %v42, %loop4 ]
  store float 0x0000000000000000, ptr %v6
  %v7 = mul nsw i64 %v5, 100
  %v8 = getelementptr inbounds float, ptr %p.b0, i64 %v7
  %v9 = load <64 x float>, ptr %v8, align 4, !invariant.load !1
  store <64 x float> splat (float 0x0000000000000000), ptr %v10
  %v11 = load <64 x float>, ptr %v10
  %v12 = fadd <64 x float> %v11, %v9
  store <64 x float> %v12, ptr %v10
  %v13 = add nsw i64 %v7, 64
  %v14 = getelementptr inbounds float, ptr %p.b0, i64 %v13
  %v15 = call <64 x float> @llvm.masked.load.v64f32.p0(ptr %v14, i32 4, <64 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>, <64 x float> zeroinitializer)
  %v16 = load <64 x float>, ptr %v10
  %v17 = fadd <64 x float> %v16, %v15
  %v18 = select <64 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 true, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false, i1 false>, <64 x float> %v17, <64 x float> %v16
  store <64 x float> %v18, ptr %v10
  %v19 = load <64 x float>, ptr %v10
  %v20 = shufflevector <64 x float> %v19, <64 x float> poison, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v21 = shufflevector <64 x float> %v19, <64 x float> poison, <32 x i32> <i32 32, i32 33, i32 34, i32 35, i32 36, i32 37, i32 38, i32 39, i32 40, i32 41, i32 42, i32 43, i32 44, i32 45, i32 46, i32 47, i32 48, i32 49, i32 50, i32 51, i32 52, i32 53, i32 54, i32 55, i32 56, i32 57, i32 58, i32 59, i32 60, i32 61, i32 62, i32 63>
  %v22 = fadd <32 x float> %v20, %v21
  %v23 = shufflevector <32 x float> %v22, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v24 = shufflevector <32 x float> %v22, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v25 = fadd <16 x float> %v23, %v24
  %v26 = shufflevector <16 x float> %v25, <16 x float> poison, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %v27 = shufflevector <16 x float> %v25, <16 x float> poison, <8 x i32> <i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v28 = fadd <8 x float> %v26, %v27
  %v29 = shufflevector <8 x float> %v28, <8 x float> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %v30 = shufflevector <8 x float> %v28, <8 x float> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %v31 = fadd <4 x float> %v29, %v30
  %v32 = shufflevector <4 x float> %v31, <4 x float> poison, <2 x i32> <i32 0, i32 1>
  %v33 = shufflevector <4 x float> %v31, <4 x float> poison, <2 x i32> <i32 2, i32 3>
  %v34 = fadd <2 x float> %v32, %v33
  %v35 = extractelement <2 x float> %v34, i64 0
  %v36 = extractelement <2 x float> %v34, i64 1
  %v37 = fadd float %v35, %v36
  %v38 = load float, ptr %v6
  %v39 = fadd float %v38, %v37
  store float %v39, ptr %v6
  %v40 = load float, ptr %v6
  %v41 = getelementptr inbounds float, ptr %p.b1, i64 %v5
  store float %v40, ptr %v41, align 4
  %v42 = add nuw nsw i64 %v5, 1
  %v43 = icmp slt i64 %v42, %end
  br i1 %v43, label %loop4, label %done44
done44:
  ret void
}
