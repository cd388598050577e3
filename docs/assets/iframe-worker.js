// The search runs in a worker, and browsers refuse workers to pages opened from disk. There, a hidden frame does its
// work, so that site/index.html can be searched without a server.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.ready = new Promise((resolve) => {
        const start = () => {
          this.frame.title = "search"
          document.body.append(this.frame)
          const inside = this.frame.contentWindow
          inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
          const script = inside.document.createElement("script")
          script.src = url
          script.onload = () => resolve(inside)
          inside.document.body.append(script)
        }
        document.body ? start() : addEventListener("DOMContentLoaded", start)
      })
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
