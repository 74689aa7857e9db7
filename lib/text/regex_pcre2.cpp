#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.hpp"
#include "text/regex.hpp"
#include "text/regex_syntax.hpp"
#include "text/utf8.hpp"

namespace vime::text {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;  // backtracking steps of one match
constexpr size_t kJitStackBytes = size_t{1} << 20;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

}  // namespace

struct Regex::Compiled {
  std::string expression;
  Code code;
};

Regex::Regex(const std::string& expression) : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = pcre2_expression(expression);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) throw Error(ErrorKind::exhausted, "no memory for an expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE place = 0;
  compiled_->expression = expression;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                                      context.get()));
  if (!compiled_->code) {
    throw Error(ErrorKind::refused, "expression \"" + expression + "\": " + message_of(error));
  }
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);  // where there is no JIT, the interpreter serves
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

struct Regex::Search::State {
  const Compiled* compiled = nullptr;
  MatchContext context;
  MatchData data;
  JitStack stack;
  std::string_view text;
  size_t from = 0;
  size_t last_end = std::string_view::npos;  // of the last match
};

Regex::Search::Search(const Regex& regex) : state_(std::make_unique<State>()) {
  state_->compiled = regex.compiled_.get();
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->stack.reset(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
  if (!state_->context || !state_->data) throw Error(ErrorKind::exhausted, "no memory to match an expression");
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
  if (state_->stack) pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}

Regex::Search::~Search() = default;

void Regex::Search::start(std::string_view text) {
  state_->text = text;
  state_->from = 0;
  state_->last_end = std::string_view::npos;
}

bool Regex::Search::next(size_t& begin, size_t& end) {
  State& state = *state_;
  while (state.from <= state.text.size()) {
    const int found =
        pcre2_match(state.compiled->code.get(), reinterpret_cast<PCRE2_SPTR>(state.text.data()), state.text.size(),
                    state.from, PCRE2_NO_UTF_CHECK, state.data.get(), state.context.get());
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      throw Error(ErrorKind::refused, "expression \"" + state.compiled->expression + "\" on a text of " +
                                          std::to_string(state.text.size()) + " bytes: " + message_of(found));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state.data.get());
    begin = bounds[0];
    end = bounds[1];
    if (begin == end && end == state.last_end) {
      state.from = end < state.text.size() ? end + character_at(state.text, end).length : end + 1;
      continue;
    }
    state.from = end;
    state.last_end = end;
    return true;
  }
  return false;
}

}  // namespace vime::text
