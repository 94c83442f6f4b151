"""A stand-in for the admin API: the dashboard's files under their policy, and answers that are made up.

Tests of pages need no broker: they say which calls fail or are slow, and read which calls came. Run it by hand to look
at the dashboard: ``python -m tests.dashboard.fake_api``.
"""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Queue
from select import select
from threading import Event, Thread
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast.wire import packets as p
from holdfast.wire.encoding import encode
from holdfast.wire.parser import PacketParser
from tests.dashboard import data
from tests.dashboard.hostile import HOSTILE

STATIC = Path(__file__).resolve().parents[2] / "src" / "holdfast" / "dashboard" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
    ".svg": "image/svg+xml",
}  # fmt: skip
PROXIED = "/proxied/holdfast"
CSRF = "the-csrf-token"
SCOPES = ["read", "publish", "retained:write", "admin"]

Arguments = dict[str, str]


class Refusal(Exception):
    """The call is refused with this status and detail."""

    def __init__(self, status: int, detail: str, field: str = "", allowed: str = "", **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.more = {**({"field": field, "allowed": allowed} if field else {}), **more}


class FakeAPI:
    """The state of the stand-in. ``fail`` maps the beginning of a path to a refusal."""

    def __init__(self) -> None:
        self.origin = ""
        self.files_last = 600  # seconds that a browser keeps the dashboard's files
        self.stopping = Event()
        self.reset()

    def reset(self) -> None:
        """Forget all calls and changes."""
        self.calls: list[tuple[str, str, Arguments, Any]] = []
        self.fail: dict[str, Refusal] = {}
        self.refused: list[tuple[str, str, Arguments, str]] = []
        self.job: dict[str, Any] = {}
        self.jobs_last = False
        self.late = False  # whether changes wait for the database
        self.scopes = list(SCOPES)
        self.signed_in = True
        self.password_login = True
        self.clients = [*HOSTILE, *(f"sensor-{at:04}" for at in range(340))]
        self.retained: dict[str, dict[str, Any]] = {}
        self.silent: list[str] | None = None  #: members that do not answer; None: no cluster
        self.nodes: list[dict[str, Any]] = [data.node(time.time(), each) for each in (1, 2, 3)]
        self.bans: list[dict[str, Any]] = [
            {
                "as": "peerhost",
                "who": "192.0.2.7",
                "reason": "too many failures",
                "by": "holdfast",
                "at": self.ago(4000),
                "until": self.ago(-4000),
            }
        ]
        self.keys: list[dict[str, Any]] = [
            {
                "name": "grafana",
                "api_key": "hf_8f31",
                "scopes": ["read"],
                "created_at": self.ago(90_000),
                "created_by": "uid 1000",
                "expired_at": "infinity",
                "expired": False,
            }
        ]
        self.alarms: list[dict[str, Any]] = [
            {
                "name": "disk_low",
                "message": "Less than 10 % of the disk is free",
                "severity": "critical",
                "details": {"free_bytes": 412},
                "activated_at": self.ago(700),
            },
            {
                "name": "writer_behind",
                "message": f"Commits take long {HOSTILE[0]}",
                "severity": "warning",
                "details": {"topic": HOSTILE[6]},
                "activated_at": self.ago(60),
            },
        ]
        self.replays: list[dict[str, Any]] = [
            {
                "id": 7,
                "clientid": "sensor-0001",
                "topic": "site/#",
                "sent": 41_200,
                "pending": 30,
                "cursor": "site/site-3/building-07/room-101",
                "state": "reading",
                "throttled": False,
                "age": 12.4,
                "total": 1_000_000,
            },
            {
                "id": 8,
                "clientid": HOSTILE[1],
                "topic": HOSTILE[6],
                "sent": 12,
                "pending": 0,
                "cursor": "a",
                "state": "throttled",
                "throttled": True,
                "age": 3.1,
            },
        ]
        self.listening: list[Queue[tuple[str, str, Any]]] = []

    def ago(self, seconds: float) -> str:
        return data.ago(time.time(), seconds)

    def tell(self, name: str, content: Any, token: str = "2") -> None:
        """Send an event to every page that listens."""
        for queue in self.listening:
            queue.put((name, token, content))

    def called(self, method: str, path: str) -> list[tuple[Arguments, Any]]:
        """Return the arguments and bodies of the calls of this kind."""
        return [(given, body) for each, place, given, body in self.calls if (each, place) == (method, path)]

    # --- calls

    def answer(
        self, method: str, path: str, given: Arguments, body: Any, *, prefers_job: bool = False
    ) -> tuple[int, Any]:
        """Answer a call below /api/v5."""
        self.calls.append((method, path, given, body))
        for prefix, refusal in self.fail.items():
            if path.startswith(prefix):
                raise refusal
        names = [unquote(part) for part in path.split("/")[1:]]
        found: Callable[..., Any] | None = getattr(self, f"{method.lower()}_{names[0].replace('-', '_')}", None)
        if names[:2] == ["mqtt", "retainer"]:
            names = names[2:]
            found = getattr(self, f"retainer_{method.lower()}_{names[0].replace('-', '_')}", None)
        if found is None:
            raise Refusal(404, "there is no such path")
        answered = found(given, body, *names[1:])
        if self.late and method != "GET":
            return 202, {"id": "5e", "kind": "call", "state": "running", "result": None}
        if prefers_job and "dry_run=true" not in [f"{name}={value}" for name, value in given.items()]:
            return 202, self.begin_job(answered)
        return (204, None) if answered is None else (200, answered)

    def begin_job(self, result: Any) -> Any:
        """Begin a job. It runs until it is cancelled if ``jobs_last``, else until it is asked for."""
        count = result.get("count", result.get("restored", 0))
        self.job = {"id": "1f", "state": "running", "progress": {"done": count // 3, "total": count}, "result": result}
        return dict(self.job)

    def get_jobs(self, _given: Arguments, _body: Any, _number: str) -> Any:
        if self.job["state"] == "running" and not self.jobs_last:
            self.job["state"] = "done"
        return dict(self.job)

    def delete_jobs(self, _given: Arguments, _body: Any, _number: str) -> None:
        self.job["state"] = "cancelled"

    def session(self) -> Any:
        return {
            "name": "user alice via dashboard",
            "scopes": self.scopes,
            "csrf_token": CSRF,
            "expires_at": self.ago(-28_800),
            "password_login": self.password_login,
        }

    def post_login(self, _given: Arguments, body: Any) -> Any:
        if body.get("token") == "good" or body.get("password") == "right":
            self.signed_in = True
            return self.session()
        raise Refusal(
            401,
            "this link has been used, or is too old; `holdfast dashboard` prints a new one"
            if "token" in body
            else "user name or password is wrong",
        )

    def post_logout(self, _given: Arguments, _body: Any) -> Any:
        self.signed_in = False

    def get_session(self, _given: Arguments, _body: Any) -> Any:
        return self.session()

    def get_monitor(self, given: Arguments, _body: Any) -> Any:
        seconds = int(given["latest"])
        return [data.sample(time.time(), age) for age in (*range(seconds, 0, -max(1, seconds // 300)), 0)]

    def get_nodes(self, _given: Arguments, _body: Any) -> Any:
        return self.nodes

    def post_nodes(self, _given: Arguments, _body: Any, number: str, _drain: str) -> Any:
        self.nodes = [{**node, "state": "draining"} if node["node"] == number else node for node in self.nodes]
        return {"node": number, "state": "draining"}

    def delete_nodes(self, _given: Arguments, _body: Any, number: str, _drain: str) -> Any:
        self.nodes = [{**node, "state": "member"} if node["node"] == number else node for node in self.nodes]
        return {"node": number, "state": "member"}

    def get_alarms(self, given: Arguments, _body: Any) -> Any:
        past = [{**self.alarms[1], "deactivate_at": self.ago(5), "duration": 55_000}] if self.alarms else []
        return listed(self.alarms if given.get("activated") == "true" else past)

    def delete_alarms(self, _given: Arguments, _body: Any) -> None:
        self.alarms = []

    def get_clients(self, given: Arguments, _body: Any, *names: str) -> Any:
        now = time.time()
        if names:
            if names[0] not in self.clients:
                raise Refusal(404, "there is no such client")
            at = self.clients.index(names[0])
            match names[1:]:
                case ["subscriptions"]:
                    return [
                        {"clientid": names[0], "node": "holdfast", "topic": topic, "qos": 1, "nl": 0, "rap": 1, "rh": 0}
                        for topic in ("site/#", *HOSTILE[:2])
                    ]
                case ["mqueue_messages"] | ["inflight_messages"]:
                    return listed(
                        [
                            {**data.detail(now, topic), "packet_id": number, "payload_size": 152}
                            for number, topic in enumerate(("building/temperature", f"hostile/{HOSTILE[0]}"))
                        ]
                    )
            return data.client(now, names[0], at)
        found = [data.client(now, each, at) for at, each in enumerate(self.clients)]
        if part := given.get("like_clientid"):
            found = [row for row in found if part in row["clientid"]]
        if state := given.get("conn_state"):
            found = [row for row in found if row["connected"] == (state == "connected")]
        return paged(found, given, self.silent)

    def delete_clients(self, _given: Arguments, _body: Any, name: str) -> None:
        self.clients.remove(name)

    def get_subscriptions(self, given: Arguments, _body: Any) -> Any:
        rows = [
            {"clientid": each, "topic": f"site/{each}/#", "qos": at % 3, "nl": 0, "rap": 0, "rh": at % 3}
            for at, each in enumerate(self.clients)
        ]
        if part := given.get("clientid"):
            rows = [row for row in rows if row["clientid"] == part]
        return paged(rows, given, self.silent)

    def get_listeners(self, _given: Arguments, _body: Any) -> Any:
        return [
            {
                "id": "mqtt",
                "name": "mqtt",
                "type": "tcp",
                "bind": "127.0.0.1:1883",
                "running": True,
                "current_connections": 1843,
                "max_connections": 10_000,
            },
            {
                "id": "web",
                "name": "web",
                "type": "wss",
                "bind": "[::]:8084",
                "running": False,
                "current_connections": 0,
                "max_connections": 0,
            },
        ]

    def get_banned(self, _given: Arguments, _body: Any) -> Any:
        return {"data": self.bans}

    def post_banned(self, _given: Arguments, body: Any) -> Any:
        if body["as"] == "peerhost" and "." not in body["who"]:
            raise Refusal(400, "who is not an address", "who", "an IPv4 or IPv6 address")
        self.bans.append({"by": "operator", "at": self.ago(0), "until": None, **body})
        return self.bans[-1]

    def delete_banned(self, _given: Arguments, _body: Any, kind: str, who: str) -> None:
        self.bans = [ban for ban in self.bans if (ban["as"], ban["who"]) != (kind, who)]

    def get_api_key(self, _given: Arguments, _body: Any) -> Any:
        return listed(self.keys)

    def post_api_key(self, _given: Arguments, body: Any) -> Any:
        self.keys.append(
            {"api_key": "hf_new", "created_at": self.ago(0), "created_by": "user alice", "expired": False, **body}
        )
        return {"name": body["name"], "api_key": "hf_new", "api_secret": "shown-once-7c1e", "scopes": body["scopes"]}

    def delete_api_key(self, _given: Arguments, _body: Any, name: str) -> None:
        self.keys = [key for key in self.keys if key["name"] != name]

    def get_configs(self, _given: Arguments, _body: Any, part: str = "") -> Any:
        if part:
            return {"file": "/etc/holdfast/holdfast.toml", "toml": "[retainer]\ndelivery_rate = 1000\n"}
        restart = "at a restart of the broker"
        values = [
            ("retainer.max_payload_size", "1 MiB", restart, False),
            ("retainer.delivery_rate", 5000, "at a reload", True),
            ("storage.url", "sqlite:///data/holdfast.db", restart, False),
        ]
        return {
            "file": "/etc/holdfast/holdfast.toml",
            "writable": True,
            "values": [
                {"key": key, "value": value, "secret": False, "takes_effect": effect, "differs": differs}
                for key, value, effect, differs in values
            ],
            "problems": [],
        }

    def put_configs(self, _given: Arguments, body: Any) -> Any:
        if "bad" in body["toml"]:
            raise Refusal(
                400,
                "nothing was changed: 1 problem",
                problems=[
                    {"file": "holdfast.toml", "line": 2, "key": "retainer.bad", "message": "there is no such key"}
                ],
            )
        changed = {"key": "retainer.delivery_rate", "old": 5000, "new": 900, "takes_effect": "at a reload"}
        return {"dry_run": body["dry_run"], "changed": [changed], "restart": [], "warnings": [], "problems": []}

    # --- retained messages

    def retainer_get_tree(self, given: Arguments, _body: Any) -> Any:
        start, limit = int(given.get("cursor", 0)), int(given["limit"])
        found, total = data.children(time.time(), given.get("topic"), start, limit)
        more = start + limit < total
        return {
            "data": found,
            "meta": {"limit": limit, "hasnext": more, "cursor": str(start + limit) if more else None},
        }

    def retainer_get_count(self, given: Arguments, _body: Any) -> Any:
        count = 1_000_132 if given.get("topic", "#") == "#" else 3
        return {"count": count, "bytes": count * 64, "exact": count < 1000}

    def retainer_get_messages(self, given: Arguments, _body: Any) -> Any:
        asked = given.get("topic", "#")
        if "#" in asked[:-1]:
            raise Refusal(
                400,
                "topic is not a Topic Filter: # is the last level only",
                "topic",
                "a Topic Filter",
            )
        now = time.time()
        topics = [
            "building/humidity",
            "building/report",
            "building/temperature",
            *(f"hostile/{name}" for name in HOSTILE),
            *(f"many/device-{at:06}" for at in range(180)),
            *self.retained,
        ]
        if asked.startswith("none"):
            topics = []
        elif not set("+#") & set(asked):
            topics = [asked] if self._is_retained(asked) else []
        elif asked.endswith("/+"):
            after = given.get("cursor", "")  # a topic, as for the real one
            given = {**given, "cursor": "0"}
            topics = [topic for topic in topics if topic.rpartition("/")[0] == asked[:-2] and topic > after]
        elif asked != "#":
            topics = [topic for topic in topics if topic.startswith(asked.rstrip("#"))]
        answer = paged([data.message(now, topic, 9 + 40 * at) for at, topic in enumerate(topics)], given)
        if "beginning" in given:
            for row in answer["data"]:
                whole = data.payload_of(row["topic"])
                row["beginning"] = b64encode(whole[: int(given["beginning"])]).decode()
        if given.get("payload") == "true":
            answer["data"] = [
                {**data.detail(now, row["topic"]), **self.retained.get(row["topic"], {})} for row in answer["data"]
            ]
        answer["meta"]["token"] = "1"
        return answer

    def retainer_get_export(self, given: Arguments, body: Any) -> Any:
        return self.retainer_get_messages({**given, "limit": "10000"}, body)["data"]

    def _is_retained(self, topic: str) -> bool:
        return topic in self.retained or ("/" in topic and not topic.startswith("cleared"))

    def retainer_post_messages(self, _given: Arguments, body: Any) -> None:
        if "+" in body["topic"]:
            raise Refusal(400, "topic: + is not allowed in a Topic Name", "topic", "a Topic Name")
        self.retained[body["topic"]] = {}

    def retainer_delete_messages(self, given: Arguments, _body: Any) -> Any:
        count = 1_000_132 if given.get("topic", "#") == "#" else 3
        return {"count": count, "dry_run": "dry_run" in given, "meta": {"hasnext": False, "cursor": None}}

    def retainer_get_history(self, given: Arguments, _body: Any) -> Any:
        start, limit = int(given.get("cursor", 0)), 40
        topic = given["topic"]
        total = 0 if topic.startswith("none") else 180
        rows = data.history(time.time(), "building/temperature" if topic == "#" else topic, start, limit, total)
        return {"data": rows, "meta": {"limit": limit, "hasnext": start + limit < total, "cursor": str(start + limit)}}

    def retainer_get_diff(self, given: Arguments, _body: Any) -> Any:
        if given["topic"].endswith("humidity"):
            return {
                "content": "text",
                "equal": False,
                "changes": [{"kind": "changed", "line": 1, "before": "45.1", "after": "47.9"}],
                "truncated": False,
            }
        changes = [
            {"kind": "changed", "path": "/degrees", "before": 21.5, "after": 22.75},
            {"kind": "added", "path": HOSTILE[0], "after": HOSTILE[1]},
        ]
        return {"content": "json", "equal": False, "changes": changes, "truncated": False}

    def retainer_post_restore(self, given: Arguments, _body: Any) -> Any:
        first = "cursor" not in given
        return {
            "restored": 2,
            "cleared": 0,
            "unchanged": 1,
            "kept": 1,
            "expired": 0,
            "changed": 0,
            "refused": 0,
            "reason": None,
            "left_out": ["noise/#"],
            "at": given["at"],
            "dry_run": given["dry_run"] == "true",
            "meta": {"hasnext": first, "cursor": "b" if first else None},
        }

    def retainer_get_replays(self, _given: Arguments, _body: Any) -> Any:
        return {"data": self.replays}

    def retainer_delete_replay(self, given: Arguments, _body: Any) -> None:
        self.replays = [each for each in self.replays if str(each["id"]) != given["id"]]


def listed(rows: list[Any]) -> Any:
    return {"data": rows, "meta": {"limit": 100, "hasnext": False}}


def paged(rows: list[Any], given: Arguments, silent: list[str] | None = None) -> Any:
    start, limit = int(given.get("cursor", 0)), int(given.get("limit", 100))
    more = start + limit < len(rows)
    return {
        "data": rows[start : start + limit],
        "meta": {
            "limit": limit, "hasnext": more, "cursor": str(start + limit) if more else None,
            **({} if silent is None else {"silent": silent}),
        },
    }  # fmt: skip


class Handler(BaseHTTPRequestHandler):
    """One connection of a browser. The same is served below a path, as by a proxy that takes it away."""

    protocol_version = "HTTP/1.1"
    api: FakeAPI

    def _place(self) -> SplitResult:
        return urlsplit(self.path.removeprefix(PROXIED))

    def do_GET(self) -> None:
        place = self._place()
        if place.path.startswith("/api/v5"):
            self._call("GET", place.path.removeprefix("/api/v5"), dict(parse_qsl(place.query, keep_blank_values=True)))
        elif place.path == "/events":
            self._events()
        else:
            self._file(place.path)

    def do_POST(self) -> None:
        self._change("POST")

    def do_PUT(self) -> None:
        self._change("PUT")

    def do_DELETE(self) -> None:
        self._change("DELETE")

    def log_message(self, *_said: object) -> None:
        """Log nothing."""

    def _change(self, method: str) -> None:
        place = self._place()
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = place.path.removeprefix("/api/v5")
        if path != "/login" and self.headers.get("X-CSRF-Token") != CSRF:
            self._respond(403, {"title": "Forbidden", "detail": "the CSRF token is missing"})
            return
        self._call(method, path, dict(parse_qsl(place.query, keep_blank_values=True)), json.loads(content or b"null"))

    def _call(self, method: str, path: str, given: Arguments, body: Any = None) -> None:
        if not self.api.signed_in and path != "/login":
            refusal = {"title": "Unauthorized", "detail": "there is no session"}
            more = {"password_login": self.api.password_login} if path == "/session" else {}
            self._respond(401, {**refusal, **more})
            return
        try:
            status, content = self.api.answer(
                method, path, given, body, prefers_job=self.headers.get("Prefer") == "respond-async"
            )
        except Refusal as refusal:
            self.api.refused.append((method, path, given, str(refusal)))
            self._respond(refusal.status, {"title": "Refused", "detail": str(refusal), **refusal.more})
        else:
            self._respond(status, content)

    def _respond(self, status: int, content: Any) -> None:
        text = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _events(self) -> None:
        queue: Queue[tuple[str, str, Any]] = Queue()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        self.api.listening.append(queue)
        try:
            self.wfile.write(b": welcome\n\n")
            while not self.api.stopping.is_set():
                try:
                    name, token, content = queue.get(timeout=0.1)
                except Empty:
                    if select([self.connection], [], [], 0)[0]:  # a page sends nothing more: it has gone
                        break
                    continue
                self.wfile.write(f"event: {name}\nid: {token}\ndata: {json.dumps(content)}\n\n".encode())
        except OSError:
            pass  # the page has gone
        finally:
            if queue in self.api.listening:
                self.api.listening.remove(queue)

    def _file(self, path: str) -> None:
        file = STATIC / (path.lstrip("/") or "index.html")
        if not file.is_file() or STATIC not in file.resolve().parents:
            self._respond(404, {"title": "Not found", "detail": "there is no such file"})
            return
        content = file.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", TYPES.get(file.suffix, "text/plain"))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", f"max-age={self.api.files_last}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that leaves a page breaks off what it was loading; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def answer_mqtt(socket: Any) -> None:
    """Answer the console as a broker does that has no messages."""
    parser = PacketParser(1 << 20)

    def take(data: str | bytes) -> None:
        assert isinstance(data, bytes)
        parser.receive_data(data)
        while (packet := parser.next_packet()) is not None:
            match packet:
                case p.Connect():
                    parser.protocol_version = 5
                    answer: p.Packet = p.Connack(session_present=False)
                case p.Subscribe():
                    answer = p.Suback(packet.packet_identifier, tuple(each.qos for each in packet.subscriptions))
                case p.Unsubscribe():
                    answer = p.Unsuback(packet.packet_identifier, tuple(0 for _ in packet.topic_filters))
                case p.Publish():
                    answer = p.Publish(packet.topic, packet.payload)
                case _:
                    continue
            socket.send(encode(answer, 5))

    socket.on_message(take)


@contextmanager
def serving(port: int = 0) -> Iterator[FakeAPI]:
    """Serve in a thread."""
    api = FakeAPI()

    server = _Server(("127.0.0.1", port), type("BoundHandler", (Handler,), {"api": api}))
    api.origin = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield api
    finally:
        api.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    with serving(18099) as running:
        running.files_last = 0
        print(running.origin)
        while True:
            time.sleep(1)
            running.tell("monitor", data.sample(time.time(), 0))
