// CUDA graphs of a call: capture on a stream of our own (the call's may be the default stream, which cannot be captured),
// relaxed, since the first launch of a kernel may load it.
// The body that is included first brings `check`.

template <class Enqueue>
inline cudaGraph_t captured(Enqueue enqueue) {
  static cudaStream_t stream = nullptr;
  if (stream == nullptr) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  enqueue(stream);
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  return graph;
}

inline cudaGraphExec_t instantiated(cudaGraph_t graph) {
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  return executable;
}
