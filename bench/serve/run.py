"""Measures and tries `lathe serve` from outside, with clients that know nothing of it.

    python3 bench/serve/run.py MODEL [--lathe target/release/lathe] [--only throughput,load,openai,lm_eval,schemathesis]

MODEL is a folder, a GGUF file or a shipped name. Throughput and load need Python alone; the others need the packages
openai, lm-eval[api] and schemathesis. Prints one JSON document.
"""
import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time


class Server:
    def __init__(self, lathe, model, *flags):
        self.process = subprocess.Popen([lathe, "serve", model, "--port", "0", "--name", "model", *flags],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if match := re.search(r"http://([\d.]+):(\d+)", line):
                self.host, self.port = match[1], int(match[2])
                return
        raise SystemExit("the server did not start")

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def peak_mb(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmHWM:\s*(\d+)", file.read())[1]) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


async def ask(server, body, path="/v1/completions"):
    """Status, seconds to the first piece and to the end, and the body."""
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection(server.host, server.port)
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    first, received = None, b""
    while piece := await reader.read(65536):
        received += piece
        if first is None and b"\r\n\r\n" in received and not received.endswith(b"\r\n\r\n"):
            first = time.perf_counter() - start
    writer.close()
    return int(received.split(b" ", 2)[1]), first, time.perf_counter() - start, received.partition(b"\r\n\r\n")[2]


def throughput(args):
    """Tokens per second of 1 and of 16 streams, after a short prompt each, in turn."""
    tokens, rates = args.tokens, {1: [], 16: []}

    async def streams(server, count):
        body = lambda i: {"prompt": f"Story {i}: once upon a time", "max_tokens": tokens, "temperature": 0,
                          "ignore_eos": True, "stream": True}
        start = time.perf_counter()
        answers = await asyncio.gather(*(ask(server, body(i)) for i in range(count)))
        assert all(status == 200 for status, *_ in answers)
        return count * tokens / (time.perf_counter() - start)

    with Server(args.lathe, args.model, "--prefix-mb", "0") as server:
        asyncio.run(streams(server, 16))
        for _ in range(args.rounds):
            for count in rates:
                rates[count].append(asyncio.run(streams(server, count)))
    medians = {count: statistics.median(found) for count, found in rates.items()}
    return {"tokens": tokens, "tokens_per_s": {str(count): round(rate, 1) for count, rate in medians.items()},
            "ratio": round(medians[16] / medians[1], 2), "rounds": {str(c): [round(r, 1) for r in found] for c, found in rates.items()}}


def load(args):
    """1,000 requests at once."""
    async def all_of(server):
        body = lambda i: {"prompt": f"Request {i} asks for", "max_tokens": 16, "ignore_eos": True}
        return await asyncio.gather(*(ask(server, body(i)) for i in range(1000)), return_exceptions=True)

    found = {}
    for name, queue in [("queue_of_2000", "2000"), ("queue_of_256", "256")]:
        with Server(args.lathe, args.model, "--queue", queue) as server:
            asyncio.run(ask(server, {"prompt": "x", "max_tokens": 1}))
            before = server.peak_mb()
            answers = asyncio.run(all_of(server))
            lost = [repr(answer) for answer in answers if isinstance(answer, BaseException)]
            good = [answer for answer in answers if not isinstance(answer, BaseException)]
            done = sorted(seconds for status, _, seconds, _ in good if status == 200)
            codes = {}
            for status, *_ in good:
                codes[str(status)] = codes.get(str(status), 0) + 1
            found[name] = {"answers": codes, "without_answer": len(lost), "lost": lost[:3],
                           "p50_s": round(done[len(done) // 2], 3), "p99_s": round(done[int(0.99 * len(done))], 3),
                           "peak_mb": {"before": round(before), "after": round(server.peak_mb())}}
    return found


def openai(args):
    """The official client, unchanged."""
    from openai import BadRequestError, OpenAI
    done = []
    with Server(args.lathe, args.model, "--api-key", "secret", "--prefix-mb", "0") as server:
        client = OpenAI(base_url=server.url + "/v1", api_key="secret")
        model = client.models.list().data[0].id
        done.append("models")
        whole = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, logprobs=2, n=2)
        assert len(whole.choices) == 2 and whole.usage.completion_tokens == 16 and len(whole.choices[0].logprobs.tokens) == 8
        pieces = client.completions.create(model=model, prompt="Once upon a time", max_tokens=8, temperature=0, stream=True)
        assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
        done.append("completions")
        vectors = client.embeddings.create(model=model, input=["a text", "another"])
        assert abs(sum(x * x for x in vectors.data[0].embedding) - 1) < 1e-4
        done.append("embeddings")
        try:
            client.completions.create(model=model, prompt="x", max_tokens=-1)
            raise AssertionError("a wrong request was accepted")
        except BadRequestError as error:
            assert "max_tokens" in error.message
        done.append("errors")
        try:
            messages = [{"role": "user", "content": "Say hello."}]
            chat = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0)
            pieces = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0, stream=True,
                                                    stream_options={"include_usage": True})
            text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
            assert text == chat.choices[0].message.content
            done.append("chat")
        except BadRequestError as error:
            assert "chat template" in error.message
    return {"passed": done}


TASK = """\
task: lathe_choices
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_target: gold
doc_to_choice: "{{{{choices}}}}"
metric_list:
  - metric: acc
  - metric: acc_norm
"""

CHOICES = [
    ("The sky on a clear day is", ["blue", "made of wood", "angry at the number seven"], 0),
    ("She opened the umbrella because it was", ["raining", "purple elephant", "seventeen"], 0),
    ("Two plus two is", ["a fish", "four", "under the table yesterday"], 1),
    ("The dog wagged its", ["keyboard", "tail", "economy"], 1),
]


def lm_eval(args):
    """lm-eval's local-completions, once with a task of choices, once with one that writes nothing new."""
    with tempfile.TemporaryDirectory() as folder, Server(args.lathe, args.model) as server:
        data = os.path.join(folder, "choices.jsonl")
        with open(data, "w") as file:
            for context, choices, gold in CHOICES:
                file.write(json.dumps({"context": context, "choices": choices, "gold": gold}) + "\n")
        with open(os.path.join(folder, "lathe_choices.yaml"), "w") as file:
            file.write(TASK.format(data=data))
        model_args = (f"model=model,base_url={server.url}/v1/completions,num_concurrent=4,max_retries=1,"
                      f"tokenizer_backend=huggingface,tokenizer={args.tokenizer}")
        out = os.path.join(folder, "out")
        command = [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", model_args,
                   "--tasks", "lathe_choices", "--include_path", folder, "--output_path", out, "--batch_size", "2"]
        run = subprocess.run(command, capture_output=True, text=True,
                             env={**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": folder})
        if run.returncode:
            return {"failed": run.stderr[-2000:]}
        for path, _, files in os.walk(out):
            for name in files:
                if name.startswith("results"):
                    with open(os.path.join(path, name)) as file:
                        return json.load(file)["results"]["lathe_choices"]
        return {"failed": "no results"}


def schemathesis(args):
    """Requests made from the OpenAPI document, good and bad."""
    with Server(args.lathe, args.model, "--max-tokens", "4096") as server:
        command = [os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", server.url + "/openapi.json",
                   "--max-examples", str(args.examples), "--request-timeout", "60", "--seed", "1", "--no-color"]
        run = subprocess.run(command, capture_output=True, text=True)
        return {"exit_code": run.returncode, "end": (run.stdout + run.stderr)[-2500:].splitlines()}


PARTS = {"throughput": throughput, "load": load, "openai": openai, "lm_eval": lm_eval, "schemathesis": schemathesis}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--lathe", default="target/release/lathe")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--tokenizer", default="", help="folder of the tokenizer, for lm_eval")
    args = parser.parse_args()
    with open("/proc/cpuinfo") as file:
        cpu = re.search(r"model name\s*: (.*)", file.read())
    found = {"model": args.model, "cpu": cpu[1] if cpu else platform.processor(), "cores": len(os.sched_getaffinity(0))}
    for name in args.only.split(","):
        found[name] = PARTS[name](args)
        print(f"{name}: {json.dumps(found[name])[:300]}", file=sys.stderr)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
