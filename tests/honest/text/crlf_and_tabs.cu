// This file ends its lines the way Windows does and indents with tabs.
#include "hopper_gemm_kernel.cuh"

#define CHECKED(call) \
	check((call), \
	      #call)

static	void	run(tvm::ffi::TensorView A,	tvm::ffi::TensorView B,	tvm::ffi::TensorView C)
{
	const Gemm	p	=	gemm_of(A, B, C);
	int		sms	=	0;
	CHECKED(cudaDeviceGetAttribute(&sms,	cudaDevAttrMultiProcessorCount,	p.device));
	/*	block comment
		over lines	*/
	wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster),	p.m,	sms,	p.stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
