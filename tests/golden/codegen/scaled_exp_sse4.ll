define internal void @kernel_0(ptr %externals, ptr %p.b0, ptr %p.b1, ptr %p.b2, i64 %threads) #0 {
entry:
  %v33 = load float, ptr %p.b1, align 4, !invariant.load !1
  %v34 = fadd float %v33, 0x3FF0000000000000
  %v35 = insertelement <4 x float> poison, float %v34, i64 0
  %v36 = shufflevector <4 x float> %v35, <4 x float> poison, <4 x i32> zeroinitializer
  br label %loop1
loop1:
  %v2 = phi i64 [ 0, %entry ], [ %v39, %loop1 ]
  %v3 = getelementptr inbounds float, ptr %p.b0, i64 %v2
  %v4 = load <4 x float>, ptr %v3, align 4, !invariant.load !1
  %v5 = fcmp olt <4 x float> %v4, splat (float 0xC05A000000000000)
  %v6 = select <4 x i1> %v5, <4 x float> splat (float 0xC05A000000000000), <4 x float> %v4
  %v7 = fcmp ogt <4 x float> %v6, splat (float 0x4056400000000000)
  %v8 = select <4 x i1> %v7, <4 x float> splat (float 0x4056400000000000), <4 x float> %v6
  %v9 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v8, <4 x float> splat (float 0x3FF7154760000000), <4 x float> splat (float 0x4168000000000000))
  %v10 = fsub <4 x float> %v9, splat (float 0x4168000000000000)
  %v11 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v10, <4 x float> splat (float 0xBFE6300000000000), <4 x float> %v8)
  %v12 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v10, <4 x float> splat (float 0x3F2BD01060000000), <4 x float> %v11)
  %v13 = fmul <4 x float> %v12, %v12
  %v14 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F2A0D2CE0000000), <4 x float> %v12, <4 x float> splat (float 0x3F56E879C0000000))
  %v15 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3F81112100000000), <4 x float> %v12, <4 x float> splat (float 0x3FA5553820000000))
  %v16 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> splat (float 0x3FC5555540000000), <4 x float> %v12, <4 x float> splat (float 0x3FE0000000000000))
  %v17 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v14, <4 x float> %v13, <4 x float> %v15)
  %v18 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v17, <4 x float> %v13, <4 x float> %v16)
  %v19 = call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %v13, <4 x float> %v18, <4 x float> %v12)
  %v20 = fadd <4 x float> %v19, splat (float 0x3FF0000000000000)
  %v21 = bitcast <4 x float> %v9 to <4 x i32>
  %v22 = sub <4 x i32> %v21, splat (i32 1262485504)
  %v23 = ashr <4 x i32> %v22, splat (i32 1)
  %v24 = add <4 x i32> %v23, splat (i32 127)
  %v25 = shl <4 x i32> %v24, splat (i32 23)
  %v26 = bitcast <4 x i32> %v25 to <4 x float>
  %v27 = sub <4 x i32> %v22, %v23
  %v28 = add <4 x i32> %v27, splat (i32 127)
  %v29 = shl <4 x i32> %v28, splat (i32 23)
  %v30 = bitcast <4 x i32> %v29 to <4 x float>
  %v31 = fmul <4 x float> %v20, %v26
  %v32 = fmul <4 x float> %v31, %v30
  %v37 = fmul <4 x float> %v32, %v36
  %v38 = getelementptr inbounds float, ptr %p.b2, i64 %v2
  store <4 x float> %v37, ptr %v38, align 4
  %v39 = add nuw nsw i64 %v2, 4
  %v40 = icmp slt i64 %v39, 64
  br i1 %v40, label %loop1, label %done41
done41:
  ret void
}
