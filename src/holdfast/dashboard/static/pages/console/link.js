// The connection of the console: MQTT 5 over a WebSocket to the broker that serves this page, as the signed-in user.
import { below, get } from "../../api.js";

export const MOST = 500;
const CALM = 200;
const RETRY = 3000;

/** One connection for the page, which goes on while other pages of the dashboard are shown. */
class Link {
  constructor() {
    this.state = "off";
    this.detail = "";
    this.messages = [];
    this.subscriptions = [];
    this.received = 0;
    this.missed = 0;
    this.paused = false;
    this.client = null;
    this.watchers = new Set();
    this.later = null;
  }

  /** Call `draw` after changes, but not more often than people can read. */
  watch(draw) {
    this.watchers.add(draw);
    return () => this.watchers.delete(draw);
  }

  tell() {
    this.later ??= setTimeout(() => { this.later = null; for (const draw of this.watchers) draw((before) => before + 1); }, CALM);
  }

  async connect() {
    if (this.client || this.state === "connecting") return;
    this.change("connecting");
    try {
      const { default: mqtt } = await import("../../vendor/mqtt.js");
      this.open(mqtt);
    } catch (error) {
      this.change("off", error.message);
    }
  }

  open(mqtt) {
    const client = mqtt.connect(below("mqtt").replace(/^http/, "ws"), {
      protocolVersion: 5, clientId: "", clean: true, reconnectPeriod: RETRY, connectTimeout: 10_000, keepalive: 30, timerVariant: "native", resubscribe: false, queueQoSZero: false,
    });
    this.client = client;
    client.on("connect", () => { this.change("live"); for (const each of this.subscriptions) this.ask(each).catch(() => {}); });
    client.on("message", (topic, payload, packet) => this.take(topic, payload, packet));
    client.on("close", () => {
      if (this.client !== client) return;
      if (this.state === "live") get("/session").catch(() => {});  // tells whether the session is over
      this.change("connecting", this.detail);
    });
    client.on("disconnect", (packet) => { this.detail = packet.properties?.reasonString ?? `The broker ended the connection (reason ${packet.reasonCode}).`; });
    client.on("error", (error) => this.change(this.state, error.message));
  }

  disconnect() {
    const client = this.client;
    this.client = null;
    client?.end(true);
    for (const each of this.subscriptions) each.granted = null;
    this.change("off");
  }

  change(state, detail = "") {
    this.state = state;
    this.detail = state === "live" ? "" : detail;
    for (const draw of this.watchers) draw((before) => before + 1);
  }

  take(topic, payload, packet) {
    this.received += 1;
    if (this.paused) this.missed += 1;
    else {
      this.messages.unshift({ number: this.received, at: Date.now(), topic, payload: new Uint8Array(payload), qos: packet.qos, retain: packet.retain, properties: packet.properties ?? {} });
      if (this.messages.length > MOST) this.messages.length = MOST;
    }
    this.tell();
  }

  async subscribe(subscription) {
    await this.ask(subscription);
    this.subscriptions = [...this.subscriptions.filter((each) => each.filter !== subscription.filter), subscription];
    this.tell();
  }

  async ask(subscription) {
    const { filter, qos, nl, rap, rh } = subscription;
    const granted = await this.client.subscribeAsync({ [filter]: { qos, nl, rap, rh } });
    subscription.granted = granted[0]?.qos ?? qos;
    this.tell();
  }

  async unsubscribe(filter) {
    this.subscriptions = this.subscriptions.filter((each) => each.filter !== filter);
    this.tell();
    if (this.client?.connected) await this.client.unsubscribeAsync(filter);
  }

  publish(topic, payload, options) {
    return this.client.publishAsync(topic, payload, options);
  }

  pause(on) {
    this.paused = on;
    if (!on) this.missed = 0;
    this.tell();
  }

  clear() {
    this.messages = [];
    this.tell();
  }
}

export const link = new Link();
