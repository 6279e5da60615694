"""Opens a page in headless Chromium, by its debugging pipe: waits until a condition holds, looks, and takes a picture.

Arguments: the browser, the page, a folder, a JSON object: {"until": expression, "ask": expression, "dark": bool, "width": n, "height": n, "shot": file}.
Prints one JSON object: {"asked": ..., "errors": [...], "urls": [...]}.
"""
import base64
import json
import os
import subprocess
import sys

browser, page, folder, wanted = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
read_ours, write_theirs = os.pipe()
read_theirs, write_ours = os.pipe()


def fds():
    # 3: it reads, 4: it writes.
    a, b = os.dup(read_theirs), os.dup(write_theirs)
    os.dup2(a, 3)
    os.dup2(b, 4)


child = subprocess.Popen(
    [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
     "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--user-data-dir=" + folder, "--remote-debugging-pipe",
     "about:blank"],
    preexec_fn=fds, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
os.close(read_theirs)
os.close(write_theirs)
out, buffered = os.fdopen(write_ours, "wb", buffering=0), b""
errors, urls, number = [], [], 0


def message():
    global buffered
    while b"\0" not in buffered:
        more = os.read(read_ours, 1 << 16)
        if not more:
            sys.exit("the browser ended")
        buffered += more
    one, buffered = buffered.split(b"\0", 1)
    one = json.loads(one)
    method, p = one.get("method"), one.get("params", {})
    if method == "Runtime.exceptionThrown":
        errors.append(p["exceptionDetails"].get("exception", {}).get("description") or p["exceptionDetails"]["text"])
    if method == "Log.entryAdded":
        errors.append(p["entry"]["text"] + " " + p["entry"].get("url", ""))
    if method == "Network.requestWillBeSent":
        urls.append(p["request"]["url"])
    return one


def call(method, session=None, **params):
    global number
    number += 1
    ask = {"id": number, "method": method, "params": params}
    if session:
        ask["sessionId"] = session
    out.write(json.dumps(ask).encode() + b"\0")
    while True:
        one = message()
        if one.get("id") == number:
            if "error" in one:
                sys.exit("%s: %s" % (method, one["error"]))
            return one["result"]


target = call("Target.createTarget", url="about:blank")["targetId"]
session = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
for domain in ("Page", "Runtime", "Log", "Network"):
    call(domain + ".enable", session)
call("Emulation.setDeviceMetricsOverride", session, width=wanted["width"], height=wanted["height"], deviceScaleFactor=1, mobile=False)
scheme = "dark" if wanted.get("dark") else "light"
call("Emulation.setEmulatedMedia", session, features=[{"name": "prefers-color-scheme", "value": scheme}])
call("Page.navigate", session, url=page)


def value(expression):
    result = call("Runtime.evaluate", session, expression=expression, returnByValue=True, awaitPromise=True)
    if "exceptionDetails" in result:
        return None
    return result["result"].get("value")


# In the page, so that nobody here asks in a circle.
waits = "new Promise(r => { const t = setInterval(() => { let ok = false; try { ok = !!(%s) } catch (e) {} if (ok) { clearInterval(t); r(true) } }, 50) })"
while not value(waits % wanted["until"]):
    pass
asked = value(wanted["ask"])
shot = call("Page.captureScreenshot", session, format="png")["data"]
with open(wanted["shot"], "wb") as f:
    f.write(base64.b64decode(shot))
print(json.dumps({"asked": asked, "errors": errors, "urls": urls}))
child.kill()
child.wait()
