#include "engine/scheduler.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace vime::engine {

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::abort:
      return "abort";
  }
  return "abort";
}

struct Scheduler::Sequence {
  Work* work = nullptr;
  int32_t index = 0;     // of the choice
  int32_t slot = -1;     // -1: waiting
  int64_t computed = 0;  // tokens whose keys and values lie in the slot
  bool finished = false;
  Choice choice;
};

struct Scheduler::Work {
  uint64_t number = 0;
  Generation generation;
  uint64_t seed = 0;
  std::vector<Sequence> sequences;
  std::size_t unfinished = 0;
  std::vector<PromptLogprob> prompt_logprobs;
};

namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void extend_span(std::vector<VersionSpan>& spans, const std::string& version, int64_t position) {
  if (spans.empty() || spans.back().version != version) spans.push_back({version, position, position});
  spans.back().end = position + 1;
}

}  // namespace

Scheduler::Scheduler(SchedulerLimits limits, std::vector<int32_t> eos_ids, uint64_t seed)
    : limits_(limits), eos_ids_(std::move(eos_ids)), seed_(seed) {
  VIME_CHECK(limits_.slots >= 1 && limits_.rows >= 1, "an engine needs a slot and a row");
  for (int64_t slot = limits_.slots; slot > 0; --slot) free_slots_.push_back(static_cast<int32_t>(slot - 1));
}

Scheduler::~Scheduler() = default;

uint64_t Scheduler::add(Generation generation) {
  auto work = std::make_unique<Work>();
  work->number = next_number_++;
  work->seed = generation.sampling.seed.value_or(mix_key(seed_, work->number));
  work->generation = std::move(generation);
  work->sequences.resize(static_cast<std::size_t>(work->generation.sampling.n));
  work->unfinished = work->sequences.size();
  int32_t index = 0;
  for (Sequence& sequence : work->sequences) {
    sequence.work = work.get();
    sequence.index = index++;
    waiting_.push_back(&sequence);
  }
  const uint64_t number = work->number;
  works_.emplace(number, std::move(work));
  return number;
}

void Scheduler::admit_waiting() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    Sequence* sequence = waiting_.front();
    waiting_.pop_front();
    sequence->slot = free_slots_.back();
    free_slots_.pop_back();
    running_.push_back(sequence);
  }
}

void Scheduler::plan(Sequence& sequence, int64_t rows, Batch& batch) {
  const Generation& generation = sequence.work->generation;
  const auto prompt = static_cast<int64_t>(generation.prompt.size());
  const auto total = prompt + static_cast<int64_t>(sequence.choice.token_ids.size());
  for (int64_t at = sequence.computed; at < sequence.computed + rows; ++at) {
    const int32_t token = at < prompt ? generation.prompt[static_cast<std::size_t>(at)]
                                      : sequence.choice.token_ids[static_cast<std::size_t>(at - prompt)];
    batch.rows.push_back({token, static_cast<int32_t>(at), sequence.slot});
  }
  Planned planned{&sequence, rows, plan_prompt_logprobs(sequence, rows, batch), sequence.computed + rows == total};
  if (planned.samples) plan_draw(sequence, batch);
  planned_.push_back(planned);
}

// The row of a prompt token looks up the token that follows. The first sequence does it for all choices, and only for
// what is not there yet: after a preemption the rows run again.
int64_t Scheduler::plan_prompt_logprobs(const Sequence& sequence, int64_t rows, Batch& batch) const {
  const Work& work = *sequence.work;
  if (!work.generation.sampling.prompt_logprobs || sequence.index != 0) return 0;
  const std::vector<int32_t>& prompt = work.generation.prompt;
  const auto first_row = static_cast<int64_t>(batch.rows.size()) - rows;
  const int64_t begin = std::max(sequence.computed, static_cast<int64_t>(work.prompt_logprobs.size()));
  const int64_t end = std::min(sequence.computed + rows, static_cast<int64_t>(prompt.size()) - 1);
  for (int64_t at = begin; at < end; ++at) {
    SampleSpec spec;
    spec.row = static_cast<int32_t>(first_row + at - sequence.computed);
    spec.forced = prompt[static_cast<std::size_t>(at + 1)];
    batch.samples.push_back(std::move(spec));
  }
  return std::max<int64_t>(end - begin, 0);
}

void Scheduler::plan_draw(const Sequence& sequence, Batch& batch) const {
  const Sampling& sampling = sequence.work->generation.sampling;
  SampleSpec spec;
  spec.row = static_cast<int32_t>(batch.rows.size() - 1);
  spec.temperature = static_cast<float>(sampling.temperature);
  spec.top_p = static_cast<float>(sampling.top_p);
  spec.top_k = sampling.top_k;
  spec.min_p = static_cast<float>(sampling.min_p);
  spec.seed = sequence.work->seed + static_cast<uint64_t>(sequence.index);
  spec.step = static_cast<int64_t>(sequence.choice.token_ids.size());
  if (spec.step < sampling.min_tokens) {
    spec.banned = sampling.stop_token_ids;
    if (!sampling.ignore_eos) spec.banned.insert(spec.banned.end(), eos_ids_.begin(), eos_ids_.end());
  }
  batch.samples.push_back(std::move(spec));
}

Batch Scheduler::next_batch(bool admit) {
  if (admit) admit_waiting();
  Batch batch;
  planned_.clear();
  int64_t left = limits_.rows;
  // Sequences that need one row give one token each; prompts take what is left.
  for (const bool decoding : {true, false}) {
    for (Sequence* sequence : running_) {
      if (left == 0) break;
      const auto total =
          static_cast<int64_t>(sequence->work->generation.prompt.size() + sequence->choice.token_ids.size());
      const int64_t missing = total - sequence->computed;
      if ((missing == 1) != decoding) continue;
      const int64_t rows = std::min(missing, left);
      plan(*sequence, rows, batch);
      left -= rows;
    }
  }
  return batch;
}

void Scheduler::append(Sequence& sequence, const Sampled& sampled, const std::string& weight_version) {
  const Generation& generation = sequence.work->generation;
  const Sampling& sampling = generation.sampling;
  Choice& choice = sequence.choice;
  extend_span(choice.versions, weight_version, static_cast<int64_t>(choice.token_ids.size()));
  choice.token_ids.push_back(sampled.token);
  choice.logprobs.push_back(sampled.logprob);
  ++counts_.generation_tokens;
  const auto generated = static_cast<int64_t>(choice.token_ids.size());
  if (generated > sampling.min_tokens) {
    // The banned ids keep earlier tokens from being a stop id; the token at min_tokens may be one.
    if (!sampling.ignore_eos && contains(eos_ids_, sampled.token)) return finish(sequence, FinishReason::stop);
    if (contains(sampling.stop_token_ids, sampled.token)) {
      choice.stop_token = sampled.token;
      return finish(sequence, FinishReason::stop);
    }
  }
  const auto total = static_cast<int64_t>(generation.prompt.size()) + generated;
  if (generated >= sampling.max_tokens || total >= limits_.max_model_len) finish(sequence, FinishReason::length);
}

void Scheduler::accept(const std::vector<Sampled>& sampled, const std::string& weight_version) {
  std::size_t next = 0;
  ++counts_.steps;
  for (const Planned& planned : planned_) {
    planned.sequence->computed += planned.rows;
    const std::size_t wanted = static_cast<std::size_t>(planned.prompt_logprobs) + (planned.samples ? 1 : 0);
    VIME_CHECK(wanted <= sampled.size() - next, "the executor drew fewer tokens than the step asked for");
    for (int64_t i = 0; i < planned.prompt_logprobs; ++i) {
      const Sampled& found = sampled[next++];
      planned.sequence->work->prompt_logprobs.push_back(
          {found.logprob, found.rank, found.top_token, found.top_logprob});
    }
    if (planned.samples) append(*planned.sequence, sampled[next++], weight_version);
  }
  VIME_CHECK(next == sampled.size(), "the executor drew more tokens than the step asked for");
  planned_.clear();
  drop_finished();
}

void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  sequence.finished = true;
  sequence.choice.reason = reason;
  ++counts_.finished[static_cast<int>(reason)];
  if (sequence.slot >= 0) free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  if (--sequence.work->unfinished == 0) done_.push_back(sequence.work);
}

void Scheduler::drop_finished() {
  const auto finished = [](const Sequence* sequence) { return sequence->finished; };
  running_.erase(std::remove_if(running_.begin(), running_.end(), finished), running_.end());
  for (Work* work : std::exchange(done_, {})) {
    // The callback may add or abort, so the work leaves the table before it runs.
    const std::unique_ptr<Work> owned = std::move(works_.at(work->number));
    works_.erase(work->number);
    counts_.prompt_tokens += owned->generation.prompt.size();
    GenerationResult result;
    for (Sequence& sequence : owned->sequences) result.choices.push_back(std::move(sequence.choice));
    result.prompt_logprobs = std::move(owned->prompt_logprobs);
    owned->generation.done(std::move(result));
  }
}

int64_t Scheduler::abort_if(const std::function<bool(const Work&)>& wanted) {
  int64_t count = 0;
  for (auto& [number, work] : works_) {
    if (!wanted(*work)) continue;
    ++count;
    for (Sequence& sequence : work->sequences) {
      if (!sequence.finished) finish(sequence, FinishReason::abort);
    }
  }
  if (count == 0) return 0;
  planned_.clear();
  const auto finished = [](const Sequence* sequence) { return sequence->finished; };
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), finished), waiting_.end());
  drop_finished();
  return count;
}

int64_t Scheduler::abort(const std::vector<uint64_t>& numbers) {
  return abort_if(
      [&](const Work& work) { return std::find(numbers.begin(), numbers.end(), work.number) != numbers.end(); });
}

int64_t Scheduler::abort_ids(const std::vector<std::string>& ids) {
  return abort_if([&](const Work& work) {
    return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
      const std::string& own = work.generation.id;  // "<call>-<prompt index>": the call's id names all its prompts
      return own == id || (own.rfind('-') == id.size() && own.compare(0, id.size(), id) == 0);
    });
  });
}

int64_t Scheduler::abort_all() {
  return abort_if([](const Work&) { return true; });
}

void Scheduler::fail_all(const std::string& error) {
  planned_.clear();
  waiting_.clear();
  for (Sequence* sequence : running_) free_slots_.push_back(sequence->slot);
  running_.clear();
  for (auto& [number, work] : std::exchange(works_, {})) {
    GenerationResult result;
    result.error = error;
    work->generation.done(std::move(result));
  }
}

void Scheduler::preempt_running() {
  planned_.clear();
  while (!running_.empty()) {
    Sequence* sequence = running_.back();
    running_.pop_back();
    free_slots_.push_back(sequence->slot);
    sequence->slot = -1;
    sequence->computed = 0;
    // The weights may change meanwhile: a prompt's log-probs come from one set of them.
    Work& work = *sequence->work;
    if (sequence->index == 0 && work.prompt_logprobs.size() + 1 < work.generation.prompt.size())
      work.prompt_logprobs.clear();
    waiting_.push_front(sequence);
  }
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.running = static_cast<int64_t>(running_.size());
  counts.waiting = static_cast<int64_t>(waiting_.size());
  counts.requests = static_cast<int64_t>(works_.size());
  return counts;
}

}  // namespace vime::engine
