// A group grows from one consumer to three and shrinks to two, over 16 queues, while messages flow.
//
// In: how a client sends, and how it joins the group. Out: the facts of the Go program's `rebalance`.
// Rules:
// 1. Messages go in rounds of 16, one to each queue; their bodies are numbers. Who has a queue is told
//    by who gets the queue's message of a round, for not every client can say what it has.
// 2. Queues are shared when some rounds in a row came like that, each message to one consumer.
'use strict';

const { sleep, until } = require('./stage');

const QUEUE_COUNT = 16;
const PAUSE_MS = 10;
const STEADY_ROUNDS = 5;

/** The messages that came, by number: which members got them. */
class Rounds {
  constructor() {
    this.sentCount = 0;
    this.takers = new Map();
    this.queues = new Map();
    this.cameCount = 0;
  }

  /** A client that does not say the queue of a message sends its rounds so that each is another. */
  take(member, number, queueId = number % QUEUE_COUNT) {
    this.cameCount += 1;
    this.queues.set(number, queueId);
    if (!this.takers.has(number)) this.takers.set(number, new Set());
    this.takers.get(number).add(member);
  }

  get next() {
    return Math.ceil(this.sentCount / QUEUE_COUNT);
  }

  /** How many queues each member has by this round; nothing if one has no owner or several. */
  shares(round) {
    const counts = new Map();
    const queues = new Set();
    for (let number = round * QUEUE_COUNT; number < (round + 1) * QUEUE_COUNT; number++) {
      const takers = this.takers.get(number);
      if (!takers || takers.size !== 1) return [];
      const [member] = takers;
      counts.set(member, (counts.get(member) || 0) + 1);
      queues.add(this.queues.get(number));
    }
    return queues.size === QUEUE_COUNT ? [...counts.values()].sort((a, b) => a - b) : [];
  }

  /** Whether so many rounds in a row, of this one and later ones, are shared like that. */
  isShared(first, wanted, count) {
    let inRow = 0;
    for (let round = first; round < this.next && inRow < count; round++) {
      inRow = String(this.shares(round)) === String(wanted) ? inRow + 1 : 0;
    }
    return inRow === count;
  }
}

async function shared(stage, rounds, name, wanted) {
  const begin = Date.now();
  const first = rounds.next;
  const say = () => `shares ${wanted}, last ${rounds.shares(rounds.next - 2)}`;
  await until(say, () => rounds.isShared(first, wanted, 1));
  stage.measure(name, Date.now() - begin);
  await until(say, () => rounds.isShared(first, wanted, STEADY_ROUNDS));
  stage.fact(name, wanted);
}

/** Send until told to stop; the promise that is given ends with the last answer. */
function flow(rounds, send) {
  let isFlowing = true;
  const ended = (async () => {
    while (isFlowing) {
      await send(rounds.sentCount);
      rounds.sentCount += 1;
      await sleep(PAUSE_MS);
    }
  })();
  ended.catch(() => {}); // whoever stops the flow is told
  return () => {
    isFlowing = false;
    return ended;
  };
}

/** `send(number)` sends one message; `join(take)` gives a function that leaves the group. */
async function rebalance(stage, send, join) {
  const rounds = new Rounds();
  const joined = member => join((number, queueId) => rounds.take(member, number, queueId));
  const stop = flow(rounds, send);
  try {
    const leave = await joined(0);
    await shared(stage, rounds, 'of one', [16]);
    await Promise.all([joined(1), joined(2)]);
    await shared(stage, rounds, 'of three', [5, 5, 6]);
    await leave();
    await shared(stage, rounds, 'of two', [8, 8]);
  } finally {
    await stop();
  }
  const cameAll = () => rounds.takers.size === rounds.sentCount;
  await until(() => `${rounds.sentCount} messages, ${rounds.takers.size} so far`, cameAll);
  stage.fact('lost', rounds.sentCount - rounds.takers.size);
  stage.measure('sent', rounds.sentCount);
  stage.measure('came again', rounds.cameCount - rounds.takers.size);
}

module.exports = { QUEUE_COUNT, rebalance };
