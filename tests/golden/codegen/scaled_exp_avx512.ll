define internal void @kernel_0(ptr %externals, ptr %p.b0, ptr %p.b1, ptr %p.b2, i64 %threads) #0 {
entry:
  %v28 = load float, ptr %p.b1, align 4, !invariant.load !1
  %v29 = fadd float %v28, 0x3FF0000000000000
  %v30 = insertelement <32 x float> poison, float %v29, i64 0
  %v31 = shufflevector <32 x float> %v30, <32 x float> poison, <32 x i32> zeroinitializer
  br label %loop1
loop1:
  %v2 = phi i64 [ 0, %entry ], [ %v34, %loop1 ]
  %v3 = getelementptr inbounds float, ptr %p.b0, i64 %v2
  %v4 = load <32 x float>, ptr %v3, align 4, !invariant.load !1
  %v5 = fcmp olt <32 x float> %v4, splat (float 0xC05A000000000000)
  %v6 = select <32 x i1> %v5, <32 x float> splat (float 0xC05A000000000000), <32 x float> %v4
  %v7 = fcmp ogt <32 x float> %v6, splat (float 0x4056400000000000)
  %v8 = select <32 x i1> %v7, <32 x float> splat (float 0x4056400000000000), <32 x float> %v6
  %v9 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v8, <32 x float> splat (float 0x3FF7154760000000), <32 x float> splat (float 0x4168000000000000))
  %v10 = fsub <32 x float> %v9, splat (float 0x4168000000000000)
  %v11 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v10, <32 x float> splat (float 0xBFE6300000000000), <32 x float> %v8)
  %v12 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v10, <32 x float> splat (float 0x3F2BD01060000000), <32 x float> %v11)
  %v13 = fmul <32 x float> %v12, %v12
  %v14 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> splat (float 0x3F2A0D2CE0000000), <32 x float> %v12, <32 x float> splat (float 0x3F56E879C0000000))
  %v15 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> splat (float 0x3F81112100000000), <32 x float> %v12, <32 x float> splat (float 0x3FA5553820000000))
  %v16 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> splat (float 0x3FC5555540000000), <32 x float> %v12, <32 x float> splat (float 0x3FE0000000000000))
  %v17 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v14, <32 x float> %v13, <32 x float> %v15)
  %v18 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v17, <32 x float> %v13, <32 x float> %v16)
  %v19 = call <32 x float> @llvm.fmuladd.v32f32(<32 x float> %v13, <32 x float> %v18, <32 x float> %v12)
  %v20 = fadd <32 x float> %v19, splat (float 0x3FF0000000000000)
  %v21 = shufflevector <32 x float> %v20, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v22 = shufflevector <32 x float> %v10, <32 x float> poison, <16 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15>
  %v23 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v21, <16 x float> %v22, <16 x float> zeroinitializer, i16 -1, i32 4)
  %v24 = shufflevector <32 x float> %v20, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v25 = shufflevector <32 x float> %v10, <32 x float> poison, <16 x i32> <i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v26 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v24, <16 x float> %v25, <16 x float> zeroinitializer, i16 -1, i32 4)
  %v27 = shufflevector <16 x float> %v23, <16 x float> %v26, <32 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7, i32 8, i32 9, i32 10, i32 11, i32 12, i32 13, i32 14, i32 15, i32 16, i32 17, i32 18, i32 19, i32 20, i32 21, i32 22, i32 23, i32 24, i32 25, i32 26, i32 27, i32 28, i32 29, i32 30, i32 31>
  %v32 = fmul <32 x float> %v27, %v31
  %v33 = getelementptr inbounds float, ptr %p.b2, i64 %v2
  store <32 x float> %v32, ptr %v33, align 4
  %v34 = add nuw nsw i64 %v2, 32
  %v35 = icmp slt i64 %v34, 64
  br i1 %v35, label %loop1, label %done36
done36:
  ret void
}
