"""POST /v1/chat/completions and GET /v1/models, as OpenAI's clients ask for them.

A completion is an event of the page's queue as any other run: it waits there, counts among its visitor's, and ends when
nobody reads it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

import gradio as gr
import orjson
from gradio.data_classes import PredictBodyInternal
from gradio.server_messages import ProcessCompletedMessage, ProcessGeneratingMessage, UnexpectedErrorMessage
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from app import chat
from app.admission import COMPLETION, Admission
from app.api import Unread
from app.chat import Answer, ChatRequest
from app.presence import counted
from app.runs import Runs
from app.view import follow, sentence
from app.visitors import visitor
from backend.inference.control import Control
from backend.settings import RunSettings

EVENT = COMPLETION
# The only kind of address at which Gradio takes an event.
ADDRESS = f"/gradio_api/call/{EVENT}"
COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"
Update = dict[str, Any]
CLOSING = "The lab is being closed: ask again later."


def endpoint(lab: Any, runs: Runs, unread: Unread) -> Callable[..., Iterator[Update]]:
    """The queue's function behind a completion. unread: as in app.api."""

    def write(request: gr.Request, settings: Update) -> Iterator[Update]:
        try:
            with runs.started(request.session_hash, Control(), "api", beside=True) as run:
                for view in follow(lab, RunSettings(**settings), run):
                    if view.ended or (view.series.answer and not unread(request.session_hash)):
                        finish = asdict(view.series.finish) if view.series.finish else None
                        yield {"text": view.series.answer, "finish": finish}
        except Exception as error:
            raise gr.Error(sentence(error, chat.NAMES), print_exception=False) from error

    return write


def routes(names: Callable[[], list[str]], queue: Admission) -> list[Route]:
    """Both addresses. names: of the models that may be asked for. queue: where completions wait."""

    async def complete(request: Request) -> Response:
        try:
            asked = ChatRequest.model_validate_json(await request.body())
            settings = asked.settings()
            return await _answered(queue, request, asked, settings)
        except HTTPException as error:
            return JSONResponse(chat.failure(error.detail, chat.kind(error.status_code)), error.status_code)
        except ValueError as error:
            return JSONResponse(chat.failure(_words(error)), 400)

    async def listed(request: Request) -> Response:
        return JSONResponse(chat.models(names()))

    return [Route(COMPLETIONS, complete, methods=["POST"]), Route(MODELS, listed)]


def _words(error: ValueError) -> str:
    if isinstance(error, ValidationError) and error.errors()[0]["type"] == "json_invalid":
        return "The request is no JSON: send a JSON object."
    return chat.refusal(error)


async def _answered(queue: Admission, request: Request, asked: ChatRequest, settings: RunSettings) -> Response:
    answer = Answer(f"chatcmpl-{secrets.token_hex(12)}", asked)
    updates = _updates(queue, request, settings)
    # The status says whether it can run, and is sent before a stream's first part.
    first = await _unless_gone(request, anext(updates))
    if first is None:
        return Response(status_code=499)
    if asked.stream:
        return StreamingResponse(_parts(answer, first, updates), media_type="text/event-stream")
    last = await _unless_gone(request, _last(first, updates))
    if last is None:
        return Response(status_code=499)
    return JSONResponse(answer.whole(last))


async def _parts(answer: Answer, first: Update, updates: AsyncGenerator[Update]) -> AsyncIterator[str]:
    async with aclosing(updates):
        try:
            for chunk in answer.chunks(first):
                yield _line(chunk)
            async for update in updates:
                for chunk in answer.chunks(update):
                    yield _line(chunk)
        except HTTPException as error:
            yield _line(chat.failure(error.detail, chat.kind(error.status_code)))
        yield "data: [DONE]\n\n"


def _line(document: dict[str, Any]) -> str:
    return f"data: {orjson.dumps(document).decode()}\n\n"


async def _last(first: Update, updates: AsyncGenerator[Update]) -> Update:
    async with aclosing(updates):
        async for update in updates:
            first = update
    return first


async def _unless_gone(request: Request, work: Any) -> Any:
    """What the work returns, or None where the client leaves first, which ends the work."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        if not working.done():
            working.cancel()
            await asyncio.wait({working})


async def _updates(queue: Admission, request: Request, settings: RunSettings) -> AsyncGenerator[Update]:
    """Updates of the run, the last with its finish. HTTPException where it is not let in or fails, with a sentence."""
    functions = queue.blocks.fns
    number = next(number for number, function in functions.items() if function.api_name == EVENT)
    if queue.server_app is None:
        queue.set_server_app(request.app)
    if queue.stopped:
        raise HTTPException(503, CLOSING)
    asking = Request({**request.scope, "path": ADDRESS, "raw_path": ADDRESS.encode()}, request.receive)
    body = PredictBodyInternal(
        fn_index=number, data=[settings.model_dump(mode="json")], simple_format=True, request=asking
    )
    pushed, event, _ = await queue.push(body, asking, None)
    if not pushed:
        raise HTTPException(503, str(event))
    session = queue.session_of(event)
    messages = queue.pending_messages_per_session[session]
    try:
        with counted(queue.present.readers, session), counted(queue.present.owners, visitor(request.scope).owner):
            update: Update = {"finish": None}
            while not update["finish"]:
                message = await messages.get()
                if queue.stopped:
                    raise HTTPException(503, CLOSING)
                if isinstance(message, ProcessGeneratingMessage | ProcessCompletedMessage):
                    update = _update(message)
                    yield update
                elif isinstance(message, UnexpectedErrorMessage):
                    raise HTTPException(500, message.message)
    finally:
        queue.left(session, whole=False)


def _update(message: ProcessGeneratingMessage | ProcessCompletedMessage) -> Update:
    if not message.success:
        raise HTTPException(400, str(message.output["error"]))
    update: Update = message.output["data"][0]
    if update["finish"] and update["finish"]["reason"] == "error":
        raise HTTPException(500, update["finish"]["message"])
    return update
