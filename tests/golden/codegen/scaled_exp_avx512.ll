define internal void @kernel_0(ptr %externals, ptr %p.b0, ptr %p.b1, ptr %p.b2, i64 %threads) #0 {
entry:
  %v22 = load float, ptr %p.b1, align 4, !invariant.load !1
  %v23 = fadd float %v22, 0x3FF0000000000000
  %v24 = insertelement <16 x float> poison, float %v23, i64 0
  %v25 = shufflevector <16 x float> %v24, <16 x float> poison, <16 x i32> zeroinitializer
  br label %loop1
loop1:
  %v2 = phi i64 [ 0, %entry ], [ %v28, %loop1 ]
  %v3 = getelementptr inbounds float, ptr %p.b0, i64 %v2
  %v4 = load <16 x float>, ptr %v3, align 4, !invariant.load !1
  %v5 = fcmp olt <16 x float> %v4, splat (float 0xC05A000000000000)
  %v6 = select <16 x i1> %v5, <16 x float> splat (float 0xC05A000000000000), <16 x float> %v4
  %v7 = fcmp ogt <16 x float> %v6, splat (float 0x4056400000000000)
  %v8 = select <16 x i1> %v7, <16 x float> splat (float 0x4056400000000000), <16 x float> %v6
  %v9 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v8, <16 x float> splat (float 0x3FF7154760000000), <16 x float> splat (float 0x4168000000000000))
  %v10 = fsub <16 x float> %v9, splat (float 0x4168000000000000)
  %v11 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v10, <16 x float> splat (float 0xBFE6300000000000), <16 x float> %v8)
  %v12 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v10, <16 x float> splat (float 0x3F2BD01060000000), <16 x float> %v11)
  %v13 = fmul <16 x float> %v12, %v12
  %v14 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> splat (float 0x3F2A0D2CE0000000), <16 x float> %v12, <16 x float> splat (float 0x3F56E879C0000000))
  %v15 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> splat (float 0x3F81112100000000), <16 x float> %v12, <16 x float> splat (float 0x3FA5553820000000))
  %v16 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> splat (float 0x3FC5555540000000), <16 x float> %v12, <16 x float> splat (float 0x3FE0000000000000))
  %v17 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v14, <16 x float> %v13, <16 x float> %v15)
  %v18 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v17, <16 x float> %v13, <16 x float> %v16)
  %v19 = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %v13, <16 x float> %v18, <16 x float> %v12)
  %v20 = fadd <16 x float> %v19, splat (float 0x3FF0000000000000)
  %v21 = call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %v20, <16 x float> %v10, <16 x float> zeroinitializer, i16 -1, i32 4)
  %v26 = fmul <16 x float> %v21, %v25
  %v27 = getelementptr inbounds float, ptr %p.b2, i64 %v2
  store <16 x float> %v26, ptr %v27, align 4
  %v28 = add nuw nsw i64 %v2, 16
  %v29 = icmp slt i64 %v28, 64
  br i1 %v29, label %loop1, label %done30
done30:
  ret void
}
