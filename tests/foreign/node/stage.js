// What one scenario holds: its names, its clients (ended with it) and its printer; and an inbox for
// messages. Every wait has a limit. Texts printed have the run's prefix replaced by "P".
'use strict';

const LIMIT_MS = 60_000;
const LOOK_AGAIN_MS = 20;
const CLOSE_LIMIT_MS = 5_000;
// What a client adds to a message when it hands it over.
const ADDED = new Set(['MIN_OFFSET', 'MAX_OFFSET', 'CONSUME_START_TIME']);
const IDENTITIES = new Set(['UNIQ_KEY', 'ORIGIN_MESSAGE_ID']);

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

/** `say` gives what was waited for when it did not come true. */
async function until(say, claim) {
  const deadline = Date.now() + LIMIT_MS;
  while (!(await claim())) {
    if (Date.now() > deadline) throw new Error(`${say()}: not so after ${LIMIT_MS} ms`);
    await sleep(LOOK_AGAIN_MS);
  }
}

/** Messages in the order of their coming, and when. */
class Inbox {
  constructor() {
    this.messages = [];
    this.timesMs = [];
  }

  take(message) {
    this.messages.push(message);
    this.timesMs.push(Date.now());
  }

  async until(count) {
    const say = () => `${count} messages, ${this.bodies()} so far`;
    await until(say, () => this.messages.length >= count);
  }

  bodies() {
    return this.messages.map(message => message.body.toString());
  }

  sorted() {
    return this.bodies().sort();
  }
}

class Stage {
  constructor(namesrv, prefix, scenario) {
    this.namesrv = namesrv;
    this.prefix = prefix;
    this.scenario = scenario;
    this.topic = `${prefix}_${scenario}_t`;
    this.group = `${prefix}_${scenario}_g`;
    this.clientCount = 0;
    this.closers = [];
  }

  print(line) {
    process.stdout.write(`${JSON.stringify({ ...line, scenario: this.scenario })}\n`);
  }

  fact(name, value) {
    this.print({ event: 'fact', name, value });
  }

  measure(name, value) {
    this.print({ event: 'measure', name, value });
  }

  plain(text) {
    return String(text).replaceAll(this.prefix, 'P');
  }

  instance() {
    this.clientCount += 1;
    return `${this.scenario}-${process.pid}-${this.clientCount}`;
  }

  onClose(closer) {
    this.closers.push(closer);
  }

  async close() {
    for (const closer of this.closers) {
      const late = new Promise(resolve => setTimeout(resolve, CLOSE_LIMIT_MS).unref());
      await Promise.race([closer(), late]).catch(error => process.stderr.write(`${error}\n`));
    }
  }

  /** What a message says that does not differ from run to run. */
  described(message) {
    const properties = {};
    for (const key of Object.keys(message.properties).sort()) {
      if (ADDED.has(key)) continue;
      properties[key] = IDENTITIES.has(key) ? 'an id' : this.plain(message.properties[key]);
    }
    return {
      topic: this.plain(message.topic),
      body: message.body.toString(),
      flag: message.flag,
      reconsumeTimes: message.reconsumeTimes,
      bornAt: String(message.bornHost).split(':')[0],
      properties,
    };
  }
}

module.exports = { Inbox, Stage, sleep, until };
