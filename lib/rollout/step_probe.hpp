// What the parallel sweep asks trainer ranks about an optimizer step, and what each answers: figures of its part of
// every parameter's gradient and weight, against those of a single rank, which has written its own to a file. Plain
// data, and its JSON between driver and ranks.
//   {"write": path, "against": path, "weight_spacing": number, "round_weights": true or false}
//   {"shards": [{"name", "full_shape", "dim", "begin", "end", "shape", "gradient": figures, "weight": figures}],
//    "logprobs": [number], "logprobs_after": [number]}
//   figures: {"largest", "squares", "compared", "difference", "difference_squares", "at", "found", "expected"}
// Numbers that JSON lacks are "nan", "inf" and "-inf".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "tensor/tensor.hpp"

namespace vime::rollout {

// A step's file: "grad.<HF name>", of the whole batch, before clipping, and "weight.<HF name>", after the step, of
// every parameter, whole, in float32.
struct StepProbe {
  std::string write = {};    // a single rank writes such a file here; "" = none
  std::string against = {};  // the file that this rank's part is held against; "" = none
  // Of the type that weights are kept in beside their float32 master copy: the distance of neighbouring numbers, over
  // the power of two below them; 0 where there is no such type. Two masters that all but agree may round to neighbours,
  // so that much is no difference.
  double weight_spacing = 0.0;
  // A rank in float32 keeps its weights, and those of its reference, rounded to bfloat16, from before its first step
  // on; the figures of weights are its masters'. What then lies between it and one in bfloat16 is the rounding of the
  // arithmetic alone: an update smaller than half that spacing is lost to both.
  bool round_weights = false;
};

// Of a rank's part of one tensor. The first two are of its own values, the others are 0 where there is no file.
struct TensorFigures {
  double largest = 0.0;             // size of an element; NaN where one of them is
  double squares = 0.0;             // sum over the elements
  int64_t compared = 0;             // elements that were held against the file's: all
  double difference = 0.0;          // the largest; where either value is NaN: infinite, and so between equal infinities
  double difference_squares = 0.0;  // sum over the elements
  int64_t at = 0;                   // where the largest difference is: row-major place in the whole tensor
  double found = 0.0;               // the rank's value there
  double expected = 0.0;            // the file's
};

struct ShardFigures {
  std::string name;          // Hugging Face name
  tensor::Shape full_shape;  // of the whole parameter
  int dim = 0;               // which is cut, from begin to end
  int64_t begin = 0, end = 0;
  tensor::Shape shape;  // of the part, all of whose elements the figures are of
  TensorFigures gradient;
  TensorFigures weight;
};

struct StepAnswer {
  std::vector<ShardFigures> shards;  // of every parameter that the rank holds
  // Of every response token of the batch, before and after the step; NaN where others know.
  std::vector<double> logprobs;
  std::vector<double> logprobs_after;
};

Json to_json(const StepProbe& probe);
Json to_json(const StepAnswer& answer);
// Error{process_failed}, beginning with `what`, for anything else.
StepProbe parse_step_probe(const Json& json, const std::string& what);
StepAnswer parse_step_answer(const Json& json, const std::string& what);

}  // namespace vime::rollout
