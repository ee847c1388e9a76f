// Operators that the boxed kernel cannot serve.
#pragma once

namespace torch {
class Library;
}

namespace software {
void register_kernels(torch::Library& library);      // memory, storage, copies, random composites
void register_rnn_kernels(torch::Library& library);  // fused cells of recurrent networks
}  // namespace software
