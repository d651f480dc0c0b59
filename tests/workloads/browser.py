"""browser.py CHROMIUM HOME PAGE PICTURE READY CLICK RESULT [TEXT]: presses an element of a page in a headless browser.

Waits until the page is loaded and the expression READY is true, clicks the element that CLICK returns, types TEXT there or
into the prompt that opens, and waits until RESULT has changed. Takes a PICTURE (.png: the window; .pdf: the page, up to
12,000 pixels), and prints JSON: {"before", "after", "console", "requested": [addresses], "bytes": the picture's size}."""
import base64
import json
import os
import subprocess
import sys
import time

chromium, home, page, picture, ready, click, result = sys.argv[1:8]
text = "".join(sys.argv[8:])
SECONDS = 60


def start():
    """Starts the browser with its DevTools protocol on descriptors 3 and 4."""
    theirs, ours = os.pipe()
    mine, other = os.pipe()

    def own():
        # Moves the descriptors out of the way of 3 and 4.
        read, write = os.dup(theirs), os.dup(other)
        while read < 5 or write < 5:
            read, write = os.dup(read), os.dup(write)
        os.dup2(read, 3)
        os.dup2(write, 4)

    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--remote-debugging-pipe",
                 "--window-size=1280,800", "--user-data-dir=" + home]
    browser = subprocess.Popen([chromium, *arguments, "about:blank"], close_fds=False, preexec_fn=own,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(theirs)
    os.close(other)
    return browser, os.fdopen(mine, "rb"), os.fdopen(ours, "wb")


class Page:
    def __init__(self):
        self.browser, self.reads, self.writes = start()
        self.number, self.rest, self.session, self.events = 0, b"", None, []

    def next(self):
        while b"\0" not in self.rest:
            data = os.read(self.reads.fileno(), 1 << 20)
            assert data, "the browser has ended"
            self.rest += data
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def send(self, method, parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.writes.write(json.dumps(message).encode() + b"\0")
        self.writes.flush()
        return self.number

    def call(self, method, **parameters):
        number = self.send(method, parameters)
        while True:
            answer = self.next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            if answer.get("method") == "Page.javascriptDialogOpening":
                # The pending call returns once the dialog is closed.
                self.send("Page.handleJavaScriptDialog", {"accept": True, "promptText": text})
            elif "method" in answer:
                self.events.append(answer)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, is_so, what):
        end = time.monotonic() + SECONDS
        while not is_so():
            assert time.monotonic() < end, what + " did not happen"
            time.sleep(0.05)


tab = Page()
target = next(info for info in tab.call("Target.getTargets")["targetInfos"] if info["type"] == "page")
tab.session = tab.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
for domain in ("Page", "Runtime", "Network", "Log"):
    tab.call(domain + ".enable")
tab.call("Page.navigate", url=page)
tab.wait(lambda: tab.value("document.readyState === 'complete'") and tab.value(ready), ready)
before = tab.value(result)
x, y = tab.value("""(() => {
  const it = %s;
  it.scrollIntoView({block: "center"});
  const box = it.getBoundingClientRect();
  const frame = it.ownerDocument.defaultView.frameElement?.getBoundingClientRect() ?? {x: 0, y: 0};
  return [frame.x + box.x + box.width / 2, frame.y + box.y + box.height / 2];
})()""" % click)
for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
    tab.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="none" if kind == "mouseMoved" else "left", clickCount=1)
if text:
    tab.call("Input.insertText", text=text)
tab.wait(lambda: tab.value(result) != before, result)
after = tab.value(result)
if picture.endswith(".pdf"):
    # Inches have 96 pixels.
    height = min(tab.value("document.documentElement.scrollHeight"), 12000) / 96 + 1
    taken = tab.call("Page.printToPDF", printBackground=True, paperWidth=1280 / 96, paperHeight=height,
                    marginTop=0, marginBottom=0, marginLeft=0, marginRight=0, pageRanges="1")
else:
    taken = tab.call("Page.captureScreenshot", format="png")
data = base64.b64decode(taken["data"])
open(picture, "wb").write(data)
console, requested = [], []
for event in tab.events:
    if event["method"] == "Runtime.consoleAPICalled":
        console.append(" ".join(str(one.get("value", one.get("description"))) for one in event["params"]["args"]))
    elif event["method"] == "Log.entryAdded":
        console.append(event["params"]["entry"]["text"])
    elif event["method"] == "Network.requestWillBeSent":
        requested.append(event["params"]["request"]["url"])
tab.browser.kill()
print(json.dumps({"before": before, "after": after, "console": console, "requested": requested, "bytes": len(data)}))
