// /v1/completions, /inference/v1/generate and /abort_requests.
#include <memory>
#include <utility>

#include "engine/fields.hpp"
#include "engine/format_reply.hpp"
#include "engine/routes.hpp"

namespace vime::engine {
namespace {

enum class Form { completion, generate };

// One HTTP call on its way. Filled by the engine thread, then handed to the reply thread.
struct PendingCall {
  CompletionCall call;
  Form form;
  http::Responder responder;
  std::vector<GenerationResult> results;
  std::size_t unanswered;
  std::vector<uint64_t> numbers;  // of its generations; engine thread
};
using PendingPtr = std::shared_ptr<PendingCall>;

void reply_later(Shared& shared, const PendingPtr& pending) {
  shared.replies.push([&shared, pending] {
    pending->responder.respond(pending->form == Form::completion
                                   ? completion_reply(pending->call, pending->results, shared.model.name, shared.text)
                                   : generate_reply(pending->call, pending->results, shared.model.name));
  });
}

void submit(Shared& shared, const PendingPtr& pending, EngineCore& core) {
  std::vector<Generation> generations;
  for (std::size_t i = 0; i < pending->call.prompts.size(); ++i) {
    Generation generation;
    generation.id = pending->form == Form::completion ? pending->call.id + "-" + std::to_string(i) : pending->call.id;
    generation.prompt = pending->call.prompts[i];
    generation.sampling = pending->call.sampling;
    generation.done = [&shared, pending, i](GenerationResult result) {
      pending->results[i] = std::move(result);
      if (--pending->unanswered == 0) reply_later(shared, pending);
    };
    generations.push_back(std::move(generation));
  }
  const Verdict verdict = core.submit(std::move(generations), &pending->numbers);
  if (!verdict.ok()) pending->responder.respond(http::error_response(verdict.status, verdict.error));
}

void handle_call(Shared& shared, Form form, const http::ServerRequest& request, const http::Responder& responder) {
  const Json body = parse_json(request.body, "request body", ErrorKind::refused);
  if (const std::string name = named_model(body); !name.empty() && name != shared.model.name) {
    responder.respond(http::error_response(
        404, "The model `" + name + "` does not exist; this engine serves `" + shared.model.name + "`."));
    return;
  }
  const std::string id = request.header("x-request-id");
  CompletionCall call = form == Form::completion ? parse_completion(body, id, shared.model, shared.text)
                                                 : parse_generate(body, id, shared.model);
  const std::size_t prompts = call.prompts.size();
  const auto pending = std::make_shared<PendingCall>(PendingCall{std::move(call), form, responder, {}, prompts, {}});
  pending->results.resize(prompts);
  shared.engine.push([&shared, pending](EngineCore& core) { submit(shared, pending, core); });
  // The queue keeps the order, so the numbers are known by then. A weak pointer, as the responder is part of the call.
  responder.on_disconnect([&shared, weak = std::weak_ptr<PendingCall>(pending)] {
    shared.engine.push([weak](EngineCore& core) {
      if (const PendingPtr gone = weak.lock()) core.abandon(gone->numbers);
    });
  });
}

Control parse_abort(const http::ServerRequest& request) {
  const Json body = body_object(request, false);
  Fields fields(body, "abort request");
  const Json* list = fields.find("request_ids");
  fields.finish();
  if (list == nullptr) {
    return [](EngineCore& core, const http::Responder& responder) {
      answer(responder, {}, {{"status", "aborted"}, {"aborted", core.abort_all()}});
    };
  }
  std::vector<std::string> ids;
  if (!list->is_array()) fields.refuse("request_ids", "a list of strings");
  for (const Json& id : *list) {
    if (!id.is_string()) fields.refuse("request_ids", "a list of strings");
    ids.push_back(id.get<std::string>());
  }
  return [ids](EngineCore& core, const http::Responder& responder) {
    answer(responder, {}, {{"status", "aborted"}, {"aborted", core.abort_ids(ids)}});
  };
}

}  // namespace

void add_generation_routes(http::Server& server, Shared& shared) {
  server.route("POST", "/v1/completions",
               [&shared](const http::ServerRequest& request, const http::Responder& responder) {
                 handle_call(shared, Form::completion, request, responder);
               });
  server.route("POST", "/inference/v1/generate",
               [&shared](const http::ServerRequest& request, const http::Responder& responder) {
                 handle_call(shared, Form::generate, request, responder);
               });
  control_route(server, shared, "POST", "/abort_requests", parse_abort);
}

}  // namespace vime::engine
