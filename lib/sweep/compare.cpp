#include "sweep/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "base/strings.hpp"
#include "sweep/coverage.hpp"
#include "sweep/rank_answer.hpp"

namespace vime::sweep {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

std::string step_text(const StepRecord& record) {
  return "step " + std::to_string(record.step);
}

// NaN counts as infinitely far; two infinities of one sign do as well.
double distance(double a, double b) {
  const double difference = std::abs(a - b);
  return std::isnan(difference) ? kNever : difference;
}

// 0 / 0 is no difference.
double ratio(double difference, double scale) {
  return difference == 0.0 ? 0.0 : scale > 0.0 ? difference / scale : kNever;
}

std::string value_text(double value) {
  return format_number(value, 6);
}

// "[3, 17]"
std::string element_text(int64_t offset, const tensor::Shape& shape) {
  tensor::Shape index(shape.size());
  for (size_t dim = shape.size(); dim-- > 0;) {
    index[dim] = offset % shape[dim];
    offset /= shape[dim];
  }
  return tensor::shape_text(index);
}

// One of the two tensors of every parameter, over all ranks.
class ShardComparison {
 public:
  ShardComparison(std::string check, std::string noun, std::string unit, double tolerance,
                  TensorFigures ShardRecord::*figures)
      : noun_(std::move(noun)), unit_(std::move(unit)), figures_(figures) {
    check_.name = std::move(check);
    check_.tolerance = tolerance;
  }

  void parameter(const std::string& name, const StepRecord& leg, double scale) {
    bool differs = false;
    for (const RankRecord& rank : leg.ranks) {
      for (const ShardRecord& shard : rank.shards) {
        if (shard.name == name) differs = !shard_fits(shard, rank, leg, scale) || differs;
      }
    }
    differing_ += differs ? 1 : 0;
  }

  Check take() {
    if (differing_ > 0) {
      check_.failure +=
          " (first of " + std::to_string(differing_) +
          (differing_ == 1 ? " parameter)"
                           : " parameters; the largest, " + error_text(check_.error) + ", at " + check_.where + ")");
    }
    return check_;
  }

 private:
  bool shard_fits(const ShardRecord& shard, const RankRecord& rank, const StepRecord& leg, double scale) {
    if (tensor::element_count(shard.shard.shape) == 0) return true;  // the last parts of a short vocabulary
    const TensorFigures& figures = shard.*figures_;
    // One that is no number is no figure to be close by.
    const double error = ratio(std::isnan(figures.difference) ? kNever : figures.difference, scale);
    const std::string element = element_text(figures.at, shard.full_shape);
    if (error > check_.error || check_.where.empty()) {
      check_.error = error;
      check_.where = step_text(leg) + ", " + rank_name(rank.place) + ", " + shard.name + " " + element;
    }
    if (error <= check_.tolerance) return true;
    if (check_.failure.empty()) {
      check_.failure = step_text(leg) + ": " + noun_ + " of " + shard.name + " differs on " + rank_name(rank.place) +
                       ": element " + element + " is " + value_text(figures.found) + ", baseline " +
                       value_text(figures.expected) + "; " + unit_ + " " + error_text(error) + ", allowed " +
                       error_text(check_.tolerance);
    }
    return false;
  }

  Check check_;
  std::string noun_, unit_;
  TensorFigures ShardRecord::*figures_;
  int differing_ = 0;
};

Check compare_figure(const std::string& name, const std::string& noun, const StepRecord& leg, double found,
                     double expected, double scale, double tolerance) {
  Check check{
      .name = name, .error = ratio(distance(found, expected), scale), .tolerance = tolerance, .where = step_text(leg)};
  if (!(check.error <= tolerance)) {
    check.failure = step_text(leg) + ": " + noun + " is " + value_text(found) + ", baseline " + value_text(expected) +
                    "; error " + error_text(check.error) + ", allowed " + error_text(tolerance);
  }
  return check;
}

// Names tokens by sample and place in its response.
class TokenNames {
 public:
  explicit TokenNames(const std::vector<int64_t>& response_lengths) {
    for (size_t sample = 0; sample < response_lengths.size(); ++sample) {
      for (int64_t i = 0; i < response_lengths[sample]; ++i) {
        names_.push_back("sample " + std::to_string(sample) + ", response token " + std::to_string(i));
      }
    }
  }
  size_t size() const { return names_.size(); }
  const std::string& operator[](size_t token) const { return names_[token]; }

 private:
  std::vector<std::string> names_;
};

void compare_token(Check& check, const std::string& place, const std::string& noun, double found, double expected) {
  const double error = distance(found, expected);
  if (error > check.error || check.where.empty()) {
    check.error = error;
    check.where = place;
  }
  if (error <= check.tolerance || !check.failure.empty()) return;
  check.failure = place + ": " + noun + " is " + value_text(found) + ", baseline " + value_text(expected) + "; error " +
                  error_text(error) + ", allowed " + error_text(check.tolerance);
}

Check compare_logprobs(const StepRecord& baseline, const StepRecord& leg, const CompareOptions& options) {
  Check check{.name = "logprobs", .error = 0.0, .tolerance = options.tolerances.logprob};
  const TokenNames names(options.response_lengths);
  const RankRecord& whole = baseline.ranks.front();
  for (const auto& [noun, values] : {std::pair{"log-prob", &RankRecord::logprobs},
                                     std::pair{"log-prob after the step", &RankRecord::logprobs_after}}) {
    for (const RankRecord& rank : leg.ranks) {
      VIME_CHECK((rank.*values).size() == names.size() && (whole.*values).size() == names.size(), "response tokens");
      for (size_t token = 0; token < names.size(); ++token) {
        const double found = (rank.*values)[token];
        if (std::isnan(found)) continue;  // computed elsewhere; check_coverage holds somebody to it
        compare_token(check, step_text(leg) + ", " + rank_name(rank.place) + ", " + names[token], noun, found,
                      (whole.*values)[token]);
      }
    }
  }
  return check;
}

}  // namespace

double largest_gradient(const StepRecord& baseline) {
  double largest = 0.0;
  for (const ShardRecord& parameter : baseline.ranks.front().shards) {
    largest = std::max(largest, parameter.gradient.largest);
  }
  return largest;
}

double gradient_scale(double largest_of_parameter, double largest_of_model) {
  return std::max(largest_of_parameter, kGradientFloor * largest_of_model);
}

std::vector<Check> compare_step(const StepRecord& baseline, const StepRecord& leg, const CompareOptions& options) {
  const Tolerances& tolerances = options.tolerances;
  const RankRecord& whole = baseline.ranks.front();
  const double largest = largest_gradient(baseline);
  ShardComparison gradients("gradients", "gradient", "relative error", tolerances.gradient, &ShardRecord::gradient);
  ShardComparison weights("weights", "weight", "difference in learning rates", tolerances.weight, &ShardRecord::weight);
  for (const ShardRecord& parameter : whole.shards) {
    gradients.parameter(parameter.name, leg, gradient_scale(parameter.gradient.largest, largest));
    weights.parameter(parameter.name, leg, options.lr);
  }
  return {check_coverage(baseline, leg),
          compare_figure("grad_norm", "gradient norm", leg, leg.grad_norm, baseline.grad_norm,
                         std::abs(baseline.grad_norm), tolerances.grad_norm),
          gradients.take(),
          compare_figure("loss", "loss", leg, leg.loss, baseline.loss, 1.0, tolerances.loss),
          compare_logprobs(baseline, leg, options),
          weights.take()};
}

Check compare_engine(const StepRecord& baseline, int engine, const std::vector<std::vector<double>>& logprobs,
                     const CompareOptions& options) {
  Check check{.name = "engine_logprobs", .error = 0.0, .tolerance = options.tolerances.logprob};
  const TokenNames names(options.response_lengths);
  const std::string who = step_text(baseline) + ", engine " + std::to_string(engine);
  const std::vector<double>& expected = baseline.ranks.front().logprobs_after;
  VIME_CHECK(expected.size() == names.size(), "response tokens");
  if (logprobs.size() != options.response_lengths.size()) {
    check.error = kNever;
    check.failure = who + ": log-probs of " + std::to_string(logprobs.size()) + " sequences, expected " +
                    std::to_string(options.response_lengths.size());
    return check;
  }
  size_t token = 0;
  for (size_t sample = 0; sample < logprobs.size(); ++sample) {
    const auto response = static_cast<size_t>(options.response_lengths[sample]);
    for (size_t i = 0; i < response; ++i, ++token) {
      // One that is not there differs from everything.
      const size_t count = logprobs[sample].size();
      const double found = count < response ? std::nan("") : logprobs[sample][count - response + i];
      compare_token(check, who + ", " + names[token], "log-prob after the push", found, expected[token]);
    }
  }
  return check;
}

std::string baseline_problem(const StepRecord& baseline) {
  const auto say = [&](const std::string& what) { return step_text(baseline) + ": " + what; };
  if (!std::isfinite(baseline.loss)) return say("the loss is " + value_text(baseline.loss));
  if (!std::isfinite(baseline.grad_norm) || baseline.grad_norm <= 0.0) {
    return say("the gradient norm is " + value_text(baseline.grad_norm));
  }
  const RankRecord& whole = baseline.ranks.front();
  for (const ShardRecord& parameter : whole.shards) {
    if (!std::isfinite(parameter.gradient.largest) || !std::isfinite(parameter.weight.largest)) {
      return say(parameter.name + " has values that are not finite");
    }
  }
  for (const std::vector<double>* values : {&whole.logprobs, &whole.logprobs_after}) {
    if (!std::all_of(values->begin(), values->end(), [](double value) { return std::isfinite(value); })) {
      return say("there are log-probs that are not finite");
    }
  }
  return "";
}

}  // namespace vime::sweep
