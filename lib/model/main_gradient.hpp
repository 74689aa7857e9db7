// Gradients are summed in float32 over all micro-batches of a step, whatever the parameters' type. Such a gradient is
// kept where autograd keeps a leaf's gradient (Tensor::grad()): it lives as long as the parameter, is found without a
// search, and what comes to a parameter by way of autograd itself is added to it too. Functions that compute a
// parameter's gradient on a GPU add to it in place and give autograd nothing.
#pragma once

#include <torch/types.h>

namespace vime::model {

// The float32 gradient on a GPU that a function may add to in place; undefined where there is none, and for what is no
// leaf: its gradient has to pass through what it was computed by.
torch::Tensor main_gradient(const torch::Tensor& parameter);

// From now on the parameter's gradient is `gradient` (float32, of the parameter's shape and device, a view of a larger
// buffer as a rule). An undefined one takes it away.
void set_main_gradient(torch::Tensor& parameter, torch::Tensor gradient);

}  // namespace vime::model
