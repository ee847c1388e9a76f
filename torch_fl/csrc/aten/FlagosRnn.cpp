#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/RNN.h>
#include <ATen/ops/_cudnn_init_dropout_state.h>
#include <ATen/ops/_cudnn_rnn.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/FlagosDevice.h"

namespace flagos {

namespace {

// Where aten::cudnn_is_acceptable says yes, which flagos answers by the vendor's word (FlagosComposites.cpp), PyTorch's
// lstm, gru and rnn call these, through tables that go by the operands' device. They stand above autograd.

/// PyTorch's numbers for the kinds of networks.
enum class Mode : int64_t { Relu = 0, Tanh = 1, Lstm = 2, Gru = 3 };

struct Network {
  Mode mode;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;
};

struct Cells {
  at::Tensor output;
  at::Tensor hidden;
  at::Tensor cell;
};

/// The vendor advises to call flatten_parameters(), which does nothing for devices other than CUDA.
class WithoutAdvice final : public c10::WarningHandler {
 public:
  explicit WithoutAdvice(c10::WarningHandler* next) : next_(next) {}

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("flatten_parameters") == std::string::npos) {
      next_->process(warning);
    }
  }

 private:
  c10::WarningHandler* next_;
};

/// The state of the vendor's dropout, made anew for each call: it holds random numbers, which no two streams may share.
at::Tensor dropout_state(const Network& network, const at::Tensor& input) {
  if (network.dropout == 0 || !network.train) {
    return {};
  }
  const auto seed = at::empty({}, at::kLong).random_().item<int64_t>();
  return at::_cudnn_init_dropout_state(network.dropout, network.train, seed, input.options().dtype(at::kByte));
}

/// Under autocast, operands in its precision, as CUDA's library has it for its own tensors; else as they are.
at::Tensor autocasted(const at::Tensor& tensor) {
  return tensor.defined() && at::autocast::is_autocast_enabled(kFlagos)
             ? at::autocast::cached_cast(at::autocast::get_autocast_dtype(kFlagos), tensor, kFlagos)
             : tensor;
}

std::vector<at::Tensor> autocasted(at::TensorList tensors) {
  std::vector<at::Tensor> casted;
  casted.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    casted.push_back(autocasted(tensor));
  }
  return casted;
}

Cells run(const Network& network, const at::Tensor& input, at::TensorList weights, const at::Tensor& hidden,
          const at::Tensor& cell, at::IntArrayRef batch_sizes) {
  const bool projected = cell.defined() && cell.size(2) != hidden.size(2);
  const int64_t hidden_size = cell.defined() ? cell.size(2) : hidden.size(2);
  const int64_t weights_per_layer = (network.has_biases ? 4 : 2) + (projected ? 1 : 0);
  WithoutAdvice handler(c10::WarningUtils::get_warning_handler());
  const c10::WarningUtils::WarningHandlerGuard guard(&handler);
  const auto results =
      at::_cudnn_rnn(autocasted(input), autocasted(weights), weights_per_layer, /*weight_buf=*/{}, autocasted(hidden),
                     autocasted(cell), static_cast<int64_t>(network.mode), hidden_size, projected ? hidden.size(2) : 0,
                     network.layers, network.batch_first, network.dropout, network.train, network.bidirectional,
                     batch_sizes, dropout_state(network, input));
  return {std::get<0>(results), std::get<1>(results), std::get<2>(results)};
}

at::IntArrayRef numbers_of(const at::Tensor& batch_sizes) {
  TORCH_CHECK(batch_sizes.dim() == 1, "flagos: a packed sequence's batch_sizes has ", batch_sizes.dim(),
              " dimensions, expected 1");
  return {batch_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.size(0))};
}

void lstm(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, const at::Tensor& input, at::TensorList state,
          at::TensorList weights, bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional,
          bool batch_first) {
  const Network network{Mode::Lstm, has_biases, layers, dropout, train, bidirectional, batch_first};
  const Cells result = run(network, input, weights, state[0], state[1], {});
  output = result.output;
  hidden = result.hidden;
  cell = result.cell;
}

void lstm_packed(at::Tensor& output, at::Tensor& hidden, at::Tensor& cell, const at::Tensor& input,
                 const at::Tensor& batch_sizes, at::TensorList state, at::TensorList weights, bool has_biases,
                 int64_t layers, double dropout, bool train, bool bidirectional) {
  const Network network{Mode::Lstm, has_biases, layers, dropout, train, bidirectional, /*batch_first=*/false};
  const Cells result = run(network, input, weights, state[0], state[1], numbers_of(batch_sizes));
  output = result.output;
  hidden = result.hidden;
  cell = result.cell;
}

template <Mode mode>
void rnn(at::Tensor& output, at::Tensor& hidden, const at::Tensor& input, const at::Tensor& state,
         at::TensorList weights, bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional,
         bool batch_first) {
  const Network network{mode, has_biases, layers, dropout, train, bidirectional, batch_first};
  const Cells result = run(network, input, weights, state, {}, {});
  output = result.output;
  hidden = result.hidden;
}

template <Mode mode>
void rnn_packed(at::Tensor& output, at::Tensor& hidden, const at::Tensor& input, const at::Tensor& batch_sizes,
                const at::Tensor& state, at::TensorList weights, bool has_biases, int64_t layers, double dropout,
                bool train, bool bidirectional) {
  const Network network{mode, has_biases, layers, dropout, train, bidirectional, /*batch_first=*/false};
  const Cells result = run(network, input, weights, state, {}, numbers_of(batch_sizes));
  output = result.output;
  hidden = result.hidden;
}

}  // namespace

}  // namespace flagos

namespace at::native {

using flagos::Mode;

REGISTER_PRIVATEUSE1_DISPATCH(lstm_cudnn_stub, &flagos::lstm)
REGISTER_PRIVATEUSE1_DISPATCH(lstm_packed_cudnn_stub, &flagos::lstm_packed)
REGISTER_PRIVATEUSE1_DISPATCH(gru_cudnn_stub, &flagos::rnn<Mode::Gru>)
REGISTER_PRIVATEUSE1_DISPATCH(gru_packed_cudnn_stub, &flagos::rnn_packed<Mode::Gru>)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_tanh_cudnn_stub, &flagos::rnn<Mode::Tanh>)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_tanh_packed_cudnn_stub, &flagos::rnn_packed<Mode::Tanh>)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_relu_cudnn_stub, &flagos::rnn<Mode::Relu>)
REGISTER_PRIVATEUSE1_DISPATCH(rnn_relu_packed_cudnn_stub, &flagos::rnn_packed<Mode::Relu>)

}  // namespace at::native
