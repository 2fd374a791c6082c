"""Tries the page of `lathe serve` in Chromium: chats, completes, stops, on a desktop and a phone, light and dark.

    python3 bench/serve/page.py URL FOLDER   # needs the package playwright and a chromium in the path

Writes a screenshot of each to FOLDER and fails on an error of the page or on a request to anywhere else.
"""
import shutil
import sys

from playwright.sync_api import sync_playwright

url, folder = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    for name, size in [("desktop", (1280, 800)), ("phone", (390, 844))]:
        for scheme in ["light", "dark"]:
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme,
                                    bypass_csp=True)  # what waits here is evaluated in the page
            wrong = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
            page.on("request", lambda request: wrong.append(request.url)
                    if not request.url.startswith((url, "data:")) else None)
            page.goto(url)
            page.wait_for_function("document.getElementById('about').textContent !== ''")
            page.fill("#max_tokens", "40")
            if page.is_enabled("#tab-chat"):
                page.click("#tab-chat")
                page.fill("#say", "What is the capital of France?")
                page.press("#say", "Enter")
                page.wait_for_function("/tokens, .* per second/.test(document.getElementById('status').textContent)")
                assert page.inner_text("#talk p.assistant")
                page.screenshot(path=f"{folder}/{name}-{scheme}-chat.png")
            page.click("#tab-complete")
            page.fill("#text", "Once upon a time")
            page.click("#go")
            page.wait_for_function("/tokens, .* per second/.test(document.getElementById('status').textContent)")
            assert len(page.input_value("#text")) > len("Once upon a time")
            page.fill("#max_tokens", "4000")
            page.click("#go")
            page.wait_for_function("/pieces/.test(document.getElementById('status').textContent)")
            page.click("#halt")
            page.wait_for_function("document.getElementById('status').textContent === 'stopped'")
            page.wait_for_function("Number(document.getElementById('m-memory').textContent.split(' ')[0]) > 0")
            wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide, f"{name}: wider than the screen"
            page.screenshot(path=f"{folder}/{name}-{scheme}-complete.png")
            assert not wrong, wrong
            page.close()
            print(name, scheme, "ok")
    browser.close()
