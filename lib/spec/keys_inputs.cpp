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
            .doc = "Every self-check that fails ends the run with exit status 3; the same as `--ci-test`."},
           {.name = "deterministic",
            .field = FIELD(deterministic),
            .doc = "Trainer and engine compute a token's log-prob in the same order, whatever shares its batch, at the "
                   "cost of speed. On GPUs; on the CPU it changes nothing."}}};
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
        .doc = "A small model of this name, from random weights (`tiny`: 2 layers, about 100 thousand parameters; "
               "`tiny-parallel`: 5 layers, made to be cut in every parallel layout; `small`: 6 layers, 20 million "
               "parameters; `qwen3-0.6b`, `qwen3-4b`, `qwen3-8b`: the shapes of these models)."},
       {.name = "ref_load",
        .field = FIELD(model.ref_load),
        .doc = "Folder of the reference model of `algorithm.kl_loss_coef`; null = the weights that training begins "
               "with."},
       {.name = "tokenizer",
        .field = FIELD(model.tokenizer),
        .doc = "`auto`: the model folder's, or the built-in data set's for a preset. `byte`: one token per byte. "
               "`char:` and characters: one token for each. Else a folder with a `tokenizer.json` (BPE) of its own."}}};
}

Section data() {
  return {"data",
          "The prompts to train on. docs/data-and-rewards.md says what the lines of a file hold.",
          {{.name = "prompt_data",
            .field = FIELD(data.prompt_data),
            .doc = "JSONL files (plain or gzip), each with an optional slice of its lines (`train.jsonl@[0:1000]`; in "
                   "quotes inside `[]` and `{}`), and built-in data sets (`builtin:sort_digits`: four digits and `=`, "
                   "`builtin:sort_8_digits`: eight; "
                   "the answer is the digits in order). Relative paths are relative to the current folder.",
            .required = true,
            .one_stands_for_list = true},
           {.name = "input_key",
            .field = FIELD(data.input_key),
            .doc = "Key of the prompt in a line: a text, or a list of chat messages. This key and the ones below hold "
                   "for evaluations too."},
           {.name = "label_key",
            .field = FIELD(data.label_key),
            .doc = "Key of the right answer; null = the lines have none."},
           {.name = "metadata_key",
            .field = FIELD(data.metadata_key),
            .doc = "Key of an object that is handed to rewards as it is; lines may lack it."},
           {.name = "reward_key",
            .field = FIELD(data.reward_key),
            .doc = "Key of a reward type for this line alone; lines may lack it. `rm_type` in the metadata says the "
                   "same."},
           {.name = "apply_chat_template",
            .field = FIELD(data.apply_chat_template),
            .doc = "Prompts are chat messages that the model's chat template makes a text of; one of plain text counts "
                   "as the message of a user."},
           {.name = "rollout_shuffle",
            .field = FIELD(data.rollout_shuffle),
            .doc = "Draw the prompts in an order shuffled by `seed`, a new one for each pass over the data."},
           {.name = "max_bad_lines",
            .field = FIELD(data.max_bad_lines),
            .doc = "So many lines of a data set that cannot be used are left out, counted and shown; one more ends "
                   "the run.",
            .limits = between(0, 1e9)},
           {.name = "max_line_bytes",
            .field = FIELD(data.max_line_bytes),
            .doc = "A longer line is a bad line.",
            .limits = between(16, 1073741824.0)}}};
}

Section reward() {
  const Limits timeout = between(1, 7 * 86400e3);
  return {"reward",
          "How a sample is scored for training. docs/data-and-rewards.md has the rules of each type.",
          {{.name = "type",
            .field = FIELD(reward.type),
            .doc = "`exact_match`: 1 or 0. `position_match`: half for the share of right positions, half for an exact "
                   "answer. `numeric`: the answer's number. `boxed`: a mathematical answer in \\boxed{}. `f1`: words "
                   "in common. `choice`: a letter. `regex`. `command`: a program of yours. `http`: a service.",
            .choices = reward_types(),
            .derived = "`command` or `http` when that is given; required otherwise, but for `loss_type: sft`"},
           {.name = "pattern",
            .field = FIELD(reward.pattern),
            .doc = "`regex`: the expression (PCRE2); null = each sample's label is it."},
           {.name = "command",
            .field = FIELD(reward.command),
            .doc = "`command`: the program and its arguments, without a shell. It reads and writes lines of JSON."},
           {.name = "url", .field = FIELD(reward.url), .doc = "`http`: where samples are posted as JSON."},
           {.name = "group_rm",
            .field = FIELD(reward.group_rm),
            .doc = "`command` and `http`: the samples of a prompt are scored together, in one call."},
           {.name = "reward_key",
            .field = FIELD(reward.reward_key),
            .doc = "`command` and `http`: path of keys to the number in an answer (`score`, `result.score`)."},
           {.name = "timeout",
            .field = FIELD(reward.timeout),
            .doc = "How long one call may take, retries included.",
            .limits = timeout},
           {.name = "max_missing_ratio",
            .field = FIELD(reward.max_missing_ratio),
            .doc = "Samples without a usable number do not train; a larger share of them in a rollout ends the run.",
            .limits = between(0, 1)},
           {.name = "num_workers",
            .field = FIELD(reward.num_workers),
            .doc = "`command`: processes of it that run at the same time.",
            .limits = between(1, 1024)},
           {.name = "startup_timeout",
            .field = FIELD(reward.startup_timeout),
            .doc = "`command`: added to the time of a fresh process's first call.",
            .limits = timeout},
           {.name = "max_restarts",
            .field = FIELD(reward.max_restarts),
            .doc = "`command`: how often one worker may be started again during the run.",
            .limits = between(0, 1e6)},
           {.name = "concurrency",
            .field = FIELD(reward.concurrency),
            .doc = "Calls at the same time, of each worker or of the service.",
            .limits = between(0, 4096),
            .derived = "1 of a worker, 64 of a service"},
           {.name = "max_retries",
            .field = FIELD(reward.max_retries),
            .doc = "`http`: further attempts after a lost connection, a timeout, 429 or 5xx.",
            .limits = between(0, 1000)},
           {.name = "retry_backoff",
            .field = FIELD(reward.retry_backoff),
            .doc = "`http`: wait before the first of them; doubled each time.",
            .limits = timeout}}};
}

namespace {

const Limits kShare = {.least = 0, .most = 1, .least_excluded = true};

const Section& eval_dataset() {
  static const Section section{
      "eval.datasets",
      "Each entry is a data set to evaluate on. What it leaves out is taken from the keys of `eval`.",
      {{.name = "name",
        .field = ENTRY_FIELD(eval.datasets, name),
        .doc = "Its scores are the metric `eval/<name>`: letters, digits, `_`, `.`, `/` and `-`; no name twice.",
        .required = true},
       {.name = "prompt_data",
        .field = ENTRY_FIELD(eval.datasets, prompt_data),
        .doc = "The prompts, named as in `data.prompt_data`.",
        .required = true},
       {.name = "reward",
        .field = ENTRY_FIELD(eval.datasets, reward),
        .doc = "How an answer is scored, see `reward.type`; null = as the line says, else as in training.",
        .choices = reward_types(),
        .inherits = "reward"},
       {.name = "num_samples",
        .field = ENTRY_FIELD(eval.datasets, num_samples),
        .doc = "Most prompts of one evaluation, the first ones of the data set; null = all.",
        .limits = count(),
        .inherits = "num_samples"},
       {.name = "n_samples_per_eval_prompt",
        .field = ENTRY_FIELD(eval.datasets, n_samples_per_eval_prompt),
        .doc = "Answers to each prompt.",
        .limits = count(),
        .inherits = "n_samples_per_eval_prompt"},
       {.name = "temperature",
        .field = ENTRY_FIELD(eval.datasets, temperature),
        .doc = "Sampling temperature; 0 = greedy.",
        .limits = at_least(0),
        .inherits = "temperature"},
       {.name = "top_p",
        .field = ENTRY_FIELD(eval.datasets, top_p),
        .doc = "Sample from the likeliest tokens that together have this probability; 1 = from all.",
        .limits = kShare,
        .inherits = "top_p"},
       {.name = "top_k",
        .field = ENTRY_FIELD(eval.datasets, top_k),
        .doc = "Sample from so many likeliest tokens; -1 = from all.",
        .limits = between(-1, 1e6),
        .inherits = "top_k"},
       {.name = "max_response_len",
        .field = ENTRY_FIELD(eval.datasets, max_response_len),
        .doc = "Most tokens of an answer.",
        .limits = between(1, 1e8),
        .inherits = "max_response_len"}}};
  return section;
}

}  // namespace

Section eval() {
  return {"eval",
          "Evaluation during training: on one data set (`prompt_data`) or on several (`datasets`).",
          {{.name = "eval_interval",
            .field = FIELD(eval.eval_interval),
            .doc = "Evaluate after every so many rollouts; null = never.",
            .limits = between(1, 1e9)},
           {.name = "prompt_data",
            .field = FIELD(eval.prompt_data),
            .doc = "Data set, the only one, named as in `data.prompt_data`; `eval_interval` needs it or `datasets`. "
                   "`builtin:sort_digits/heldout`: the prompts that training never shows."},
           {.name = "reward",
            .field = FIELD(eval.reward),
            .doc = "How an answer is scored, see `reward.type`; null = as the line says, else as in training.",
            .choices = reward_types()},
           {.name = "num_samples",
            .field = FIELD(eval.num_samples),
            .doc = "Most prompts of one evaluation, the first ones of the data set; null = all.",
            .limits = count()},
           {.name = "n_samples_per_eval_prompt",
            .field = FIELD(eval.n_samples_per_eval_prompt),
            .doc = "Answers to each prompt; more than one needs a temperature.",
            .limits = count()},
           {.name = "temperature",
            .field = FIELD(eval.temperature),
            .doc = "Sampling temperature; 0 = greedy.",
            .limits = at_least(0)},
           {.name = "top_p",
            .field = FIELD(eval.top_p),
            .doc = "Sample from the likeliest tokens that together have this probability; 1 = from all.",
            .limits = kShare},
           {.name = "top_k",
            .field = FIELD(eval.top_k),
            .doc = "Sample from so many likeliest tokens; -1 = from all.",
            .limits = between(-1, 1e6)},
           {.name = "max_response_len",
            .field = FIELD(eval.max_response_len),
            .doc = "Most tokens of an answer.",
            .limits = between(1, 1e8),
            .derived = "`rollout.rollout_max_response_len`"},
           {.name = "skip_eval_before_train",
            .field = FIELD(eval.skip_eval_before_train),
            .doc = "Leave out the evaluation before the first rollout."},
           {.name = "datasets",
            .doc = "Several data sets, each with settings of its own; `prompt_data` then stays unset. A resolved spec "
                   "has its only data set here too.",
            .sections = SECTION_LIST(eval.datasets, eval_dataset)}}};
}

}  // namespace vime::spec::table
