// From per-token terms to one loss: the weight of every token. A loss is sum(weight[t] * term[t]) over the tokens whose
// mask is set; with the denominator of the whole step, micro-batches and ranks need only be added up. Pure functions in
// double; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vime::algo {

enum class Reducer {
  sample_mean,  // mean over each sample's masked tokens, summed, divided by the number of samples of the step
                // (global_batch_size)
  token_mean,   // sum over masked tokens, divided by the step's number of tokens (calculate_per_token_loss)
};

// The denominator of a whole step. mask [tokens] is the samples' responses one after another, lengths [samples] their
// sizes. A sample without a masked token counts as one sample or one token: it dilutes the loss and never divides by
// zero.
double loss_denominator(Reducer reducer, std::span<const uint8_t> mask, std::span<const int64_t> lengths);

// [tokens]; exactly 0 where the mask is 0. denominator > 0.
std::vector<double> token_weights(Reducer reducer, std::span<const uint8_t> mask, std::span<const int64_t> lengths,
                                  double denominator);

// sum(weights * values), skipping tokens of weight 0, whatever their value (0 x NaN would be NaN).
double weighted_sum(std::span<const double> weights, std::span<const double> values);

// Repeats each sample's value over its tokens: [samples] -> [tokens].
std::vector<double> expand_to_tokens(std::span<const double> per_sample, std::span<const int64_t> lengths);

}  // namespace vime::algo
