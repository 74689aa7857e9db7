// What goes into a run: model, data, rewards, evaluation.
#include "spec/key_table.hpp"

namespace vime::spec::table {

Section top_level() {
  return {"",
          "",
          {{.name = "name", .field = FIELD(name), .doc = "Name of the experiment, shown in logs and reports."},
           {.name = "seed",
            .field = FIELD(seed),
            .doc = "Seed of weights, data order and sampling.",
            .limits = between(0, 9007199254740991.0)},
           {.name = "ci_test",
            .field = FIELD(ci_test),
            .doc = "Every self-check that fails ends the run with exit status 3; the same as `--ci-test`."}}};
}

Section model() {
  return {
      "model",
      "What is trained: exactly one of `path` and `preset`.",
      {{.name = "path",
        .field = FIELD(model.path),
        .doc = "Folder with a Hugging Face `config.json`, weights and tokenizer."},
       {.name = "preset",
        .field = FIELD(model.preset),
        .doc = "A small model of this name, from random weights (`tiny`: 2 layers, about 100 thousand parameters)."},
       {.name = "tokenizer",
        .field = FIELD(model.tokenizer),
        .doc = "`auto`: the model folder's, or the built-in data set's for a preset. `byte`: one token per byte. "
               "`char:` and characters: one token for each. Else a folder with a `tokenizer.json` (BPE) of its own."}}};
}

Section data() {
  return {"data",
          "The prompts to train on.",
          {{.name = "prompt_data",
            .field = FIELD(data.prompt_data),
            .doc = "Name of a built-in data set (`builtin:sort_digits`: four digits and `=`; the answer is the digits "
                   "in order).",
            .choices = {"builtin:sort_digits"},
            .reason = "prompt files are not read in this version",
            .required = true},
           {.name = "rollout_shuffle",
            .field = FIELD(data.rollout_shuffle),
            .doc = "Draw the prompts in an order shuffled by `seed`, a new one for each pass over the data."}}};
}

Section reward() {
  return {
      "reward",
      "How a sample is scored for training.",
      {{.name = "type",
        .field = FIELD(reward.type),
        .doc =
            "`exact_match`: 1 or 0. `position_match`: half for the share of right positions, half for an exact answer.",
        .choices = {"position_match", "exact_match"},
        .required = true}}};
}

Section eval() {
  return {"eval",
          "Evaluation during training.",
          {{.name = "eval_interval",
            .field = FIELD(eval.eval_interval),
            .doc = "Evaluate after every so many rollouts; null = never.",
            .limits = between(1, 1e9)},
           {.name = "prompt_data",
            .field = FIELD(eval.prompt_data),
            .doc = "Data set; needed with `eval_interval`. `/heldout`: the prompts that training never shows.",
            .choices = {"builtin:sort_digits/heldout", "builtin:sort_digits"},
            .reason = "prompt files are not read in this version"},
           {.name = "reward",
            .field = FIELD(eval.reward),
            .doc = "How an answer is scored; see `reward.type`.",
            .choices = {"position_match", "exact_match"}},
           {.name = "num_samples",
            .field = FIELD(eval.num_samples),
            .doc = "Prompts of one evaluation, one answer each; all of the data set when it has fewer.",
            .limits = count()},
           {.name = "temperature",
            .field = FIELD(eval.temperature),
            .doc = "Sampling temperature; 0 = greedy.",
            .limits = at_least(0)},
           {.name = "max_response_len",
            .field = FIELD(eval.max_response_len),
            .doc = "Most tokens of an answer.",
            .limits = between(1, 1e8),
            .derived = "`rollout.rollout_max_response_len`"},
           {.name = "skip_eval_before_train",
            .field = FIELD(eval.skip_eval_before_train),
            .doc = "Leave out the evaluation before the first rollout."}}};
}

}  // namespace vime::spec::table
