#include "support/vllm/batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "base/random.hpp"
#include "executor/sampling.hpp"

namespace vime::stand_in {
namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_finished(const Work& work, std::size_t index) {
  return !work.choices[index].finish_reason.empty();
}

double log_sum(const float* logits, int64_t vocab, double scale) {
  const double most = *std::max_element(logits, logits + vocab) * scale;
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] * scale - most);
  return most + std::log(sum);
}

}  // namespace

Batch::Batch(Model& model, BatchOptions options)
    : model_(model), options_(std::move(options)), cache_(options_.block_size) {
  for (int64_t slot = options_.slots; slot > 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot - 1));
}

void Batch::add(const std::shared_ptr<Work>& work) {
  ++works_;
  const uint64_t seed = work->sampling.seed.value_or(mix_key(options_.seed, works_));
  work->choices.resize(static_cast<std::size_t>(work->sampling.n));
  if (work->abort_after == 0) {
    for (Choice& choice : work->choices) choice.finish_reason = "abort";
    work->done = true;
    return;
  }
  for (std::size_t i = 0; i < work->choices.size(); ++i) {
    auto sequence = std::make_shared<Sequence>();
    sequence->work = work;
    sequence->index = i;
    sequence->seed = seed + i;
    waiting_.push_back(std::move(sequence));
  }
}

std::vector<int32_t> Batch::tokens_of(const Sequence& sequence) const {
  std::vector<int32_t> tokens = sequence.work->prompt;
  const std::vector<int32_t>& output = sequence.work->choices[sequence.index].tokens;
  tokens.insert(tokens.end(), output.begin(), output.end());
  return tokens;
}

void Batch::run_under(int64_t generation, const std::vector<engine::TokenRow>& rows) {
  if (generation == generation_) {
    model_.logits(rows);
    return;
  }
  const std::vector<std::byte> present(model_.weights(), model_.weights() + model_.weight_bytes());
  const std::vector<std::byte>& old = cache_.weights_of(generation);
  std::memcpy(model_.weights(), old.data(), old.size());
  model_.logits(rows);
  std::memcpy(model_.weights(), present.data(), present.size());
}

// Keys and values of known blocks, by the weights that made them; older weights first, as later blocks look at earlier
// ones. Requests for prompt log-probs do not read the cache.
void Batch::restore_cached() {
  std::map<int64_t, std::vector<engine::TokenRow>> rows;
  for (const SequencePtr& sequence : running_) {
    if (sequence->computed > 0 || !options_.prefix_caching || sequence->work->sampling.prompt_logprobs) continue;
    const std::vector<int32_t> tokens = tokens_of(*sequence);
    for (const int64_t generation : cache_.find(sequence->work->cache_salt, tokens)) {
      for (int64_t i = 0; i < cache_.block_size(); ++i) {
        const int64_t at = sequence->computed++;
        rows[generation].push_back({tokens[static_cast<std::size_t>(at)], static_cast<int32_t>(at), sequence->slot});
      }
    }
  }
  for (const auto& [generation, of_generation] : rows) run_under(generation, of_generation);
}

bool Batch::step(bool admit, const std::string& version) {
  while (admit && !waiting_.empty() && !free_slots_.empty()) {
    running_.push_back(waiting_.front());
    waiting_.pop_front();
    running_.back()->slot = free_slots_.back();
    free_slots_.pop_back();
  }
  if (running_.empty()) return false;
  restore_cached();
  std::vector<engine::TokenRow> rows;
  std::vector<std::size_t> first_rows;
  for (const SequencePtr& sequence : running_) {
    const std::vector<int32_t> tokens = tokens_of(*sequence);
    first_rows.push_back(rows.size());
    for (std::size_t at = static_cast<std::size_t>(sequence->computed); at < tokens.size(); ++at)
      rows.push_back({tokens[at], static_cast<int32_t>(at), sequence->slot});
  }
  first_rows.push_back(rows.size());
  const std::vector<float> logits = model_.logits(rows);
  const auto vocab = static_cast<std::size_t>(model_.config().vocab_size);
  for (std::size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    const std::size_t count = first_rows[i + 1] - first_rows[i];
    look_up_prompt(sequence, logits.data() + first_rows[i] * vocab, static_cast<int64_t>(count));
    sequence.computed += static_cast<int64_t>(count);
    if (options_.prefix_caching)
      cache_.add(sequence.work->cache_salt, tokens_of(sequence), sequence.computed, generation_);
    append(sequence, logits.data() + (first_rows[i + 1] - 1) * vocab, version);
  }
  drop_finished();
  return true;
}

// logits: of the rows from sequence.computed on. Always of the model's own distribution.
void Batch::look_up_prompt(Sequence& sequence, const float* logits, int64_t rows) {
  Work& work = *sequence.work;
  if (!work.sampling.prompt_logprobs || sequence.index != 0) return;
  const auto prompt = static_cast<int64_t>(work.prompt.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t next = sequence.computed + row + 1;
    if (next >= prompt || static_cast<int64_t>(work.prompt_places.size()) >= next) continue;
    const float* at = logits + row * model_.config().vocab_size;
    const int32_t token = work.prompt[static_cast<std::size_t>(next)];
    const auto logprob = static_cast<float>(at[token] - log_sum(at, model_.config().vocab_size, 1.0));
    work.prompt_places.push_back(place_of(token, logprob, at, *work.sampling.prompt_logprobs, false, 1.0));
  }
}

TokenPlace Batch::place_of(int32_t token, float logprob, const float* logits, int32_t top, bool scaled,
                           double temperature) const {
  const int64_t vocab = model_.config().vocab_size;
  TokenPlace place;
  place.own = {
      token, logprob,
      static_cast<int32_t>(std::count_if(logits, logits + vocab, [&](float l) { return l >= logits[token]; }))};
  if (top <= 0) return place;
  std::vector<int32_t> order(static_cast<std::size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  const auto count = std::min<std::ptrdiff_t>(top, static_cast<std::ptrdiff_t>(vocab));
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  const double scale = scaled && temperature > 0 ? 1.0 / temperature : 1.0;
  const double whole = log_sum(logits, vocab, scale);
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const int32_t id = order[static_cast<std::size_t>(i)];
    place.top.push_back({id, static_cast<float>(logits[id] * scale - whole), static_cast<int32_t>(i + 1)});
  }
  return place;
}

void Batch::append(Sequence& sequence, const float* logits, const std::string& version) {
  const Sampling& sampling = sequence.work->sampling;
  Choice& choice = sequence.work->choices[sequence.index];
  engine::SampleSpec spec;
  spec.temperature = static_cast<float>(sampling.temperature);
  spec.top_p = static_cast<float>(sampling.top_p);
  spec.top_k = sampling.top_k;
  spec.min_p = static_cast<float>(sampling.min_p);
  spec.seed = sequence.seed;
  spec.step = static_cast<int64_t>(choice.tokens.size());
  if (spec.step < sampling.min_tokens) {
    spec.banned = sampling.stop_token_ids;
    if (!sampling.ignore_eos) spec.banned.insert(spec.banned.end(), options_.eos_ids.begin(), options_.eos_ids.end());
  }
  const bool processed = options_.logprobs_mode.starts_with("processed");
  const engine::Sampled drawn =
      executor::draw(logits, model_.config().vocab_size, spec,
                     processed ? executor::LogprobsMode::processed : executor::LogprobsMode::raw);
  float reported = drawn.logprob;
  if (options_.logprobs_mode.ends_with("logits"))
    reported = logits[drawn.token] / (processed && sampling.temperature > 0 ? spec.temperature : 1.0f);
  const auto position = static_cast<int64_t>(choice.tokens.size());
  if (choice.versions.empty() || choice.versions.back().version != version)
    choice.versions.push_back({version, position, position});
  choice.versions.back().end = position + 1;
  choice.tokens.push_back(drawn.token);
  choice.places.push_back(
      place_of(drawn.token, reported, logits, sampling.logprobs.value_or(0), processed, sampling.temperature));

  const auto generated = static_cast<int64_t>(choice.tokens.size());
  if (sequence.work->abort_after && generated >= *sequence.work->abort_after) return finish(sequence, "abort");
  if (generated > sampling.min_tokens) {
    if (!sampling.ignore_eos && contains(options_.eos_ids, drawn.token)) return finish(sequence, "stop");
    if (contains(sampling.stop_token_ids, drawn.token)) {
      choice.stop_token = drawn.token;
      return finish(sequence, "stop");
    }
  }
  const auto total = static_cast<int64_t>(sequence.work->prompt.size()) + generated;
  if (generated >= sampling.max_tokens || total >= options_.max_model_len) finish(sequence, "length");
}

void Batch::finish(Sequence& sequence, const std::string& reason) {
  Work& work = *sequence.work;
  work.choices[sequence.index].finish_reason = reason;
  if (sequence.slot >= 0) free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  work.done = std::all_of(work.choices.begin(), work.choices.end(),
                          [](const Choice& choice) { return !choice.finish_reason.empty(); });
}

void Batch::drop_finished() {
  const auto finished = [](const SequencePtr& sequence) { return is_finished(*sequence->work, sequence->index); };
  std::erase_if(running_, finished);
  std::erase_if(waiting_, finished);
}

void Batch::abort(const std::function<bool(const Work&)>& wanted, int64_t* count) {
  std::vector<SequencePtr> all = running_;
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  for (const SequencePtr& sequence : all) {
    const bool was_done = sequence->work->done;
    if (wanted(*sequence->work)) finish(*sequence, "abort");
    if (count != nullptr && !was_done && sequence->work->done) ++*count;
  }
  drop_finished();
}

void Batch::fail_all(const std::string& error) {
  std::vector<SequencePtr> all = running_;
  all.insert(all.end(), waiting_.begin(), waiting_.end());
  running_.clear();
  waiting_.clear();
  for (const SequencePtr& sequence : all) {
    sequence->work->error = error;
    sequence->work->done = true;
  }
}

void Batch::preempt_running() {
  while (!running_.empty()) {
    SequencePtr sequence = running_.back();
    running_.pop_back();
    free_slots_.push_back(sequence->slot);
    sequence->slot = -1;
    sequence->computed = 0;
    waiting_.push_front(std::move(sequence));
  }
}

bool Batch::has_unknown_token() const {
  const auto unknown = [&](const SequencePtr& sequence) {
    const std::vector<int32_t>& prompt = sequence->work->prompt;
    return std::any_of(prompt.begin(), prompt.end(), [&](int32_t id) { return id >= model_.config().vocab_size; });
  };
  return std::any_of(running_.begin(), running_.end(), unknown) ||
         std::any_of(waiting_.begin(), waiting_.end(), unknown);
}

void Batch::keep_weights() {
  cache_.keep_weights(generation_, model_.weights(), model_.weight_bytes());
}

}  // namespace vime::stand_in
