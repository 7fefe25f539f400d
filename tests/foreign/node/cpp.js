// Scenarios with rocketmq-nodejs 1.1.2: Apache's C++ client 2.x in a native module.
'use strict';

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const path = require('node:path');
const readline = require('node:readline');
const { Producer, PushConsumer } = require('rocketmq-nodejs');
const { QUEUE_COUNT, rebalance } = require('./rebalance');
const { Inbox, sleep } = require('./stage');

const MEMBER = path.join(__dirname, 'cpp_member.js');
const LIFE_MS = 120_000;
const COMMIT_MS = 6000; // the client commits every 5 s; what it commits at its end can be lost

async function producer(stage) {
  const client = new Producer(`${stage.group}_p`, stage.instance(), {
    nameServer: stage.namesrv,
    sendMessageTimeout: 15_000,
  });
  await client.start();
  stage.onClose(() => client.shutdown());
  return client;
}

async function consumer(stage, expression, inbox, options = {}) {
  const { answer = () => true, ...further } = options;
  const client = new PushConsumer(stage.group, stage.instance(), {
    nameServer: stage.namesrv,
    ...further,
  });
  client.on('message', (message, ack) => {
    inbox.take(message);
    ack.done(answer());
  });
  client.subscribe(stage.topic, expression);
  await client.start();
  return client;
}

async function lasting(stage, expression, inbox, options) {
  const client = await consumer(stage, expression, inbox, options);
  stage.onClose(() => client.shutdown());
}

async function sync(stage) {
  const inbox = new Inbox();
  const client = await producer(stage);
  const statuses = [];
  for (let i = 0; i < 8; i++) {
    const options = { tags: 'TagA', keys: `key-${i}` };
    statuses.push((await client.send(stage.topic, `bödy-${i}`, options)).statusStr);
  }
  await lasting(stage, '*', inbox);
  await inbox.until(8);
  stage.fact('statuses', statuses);
  const seen = inbox.messages.map(({ topic, tags, keys, body }) => (
    { topic: stage.plain(topic), tags, keys, body: body.toString() }));
  stage.fact('messages', seen.sort((a, b) => (a.body < b.body ? -1 : 1)));
}

async function compressed(stage) {
  const inbox = new Inbox();
  const client = await producer(stage);
  const big = 'x'.repeat(20_000);
  await client.send(stage.topic, big);
  await lasting(stage, '*', inbox);
  await inbox.until(1);
  stage.fact('body comes back', inbox.messages[0].body.toString() === big);
}

async function tags(stage) {
  const inbox = new Inbox();
  const client = await producer(stage);
  for (const tag of ['A', 'B', 'C', 'A']) await client.send(stage.topic, `tag-${tag}`, { tags: tag });
  await lasting(stage, 'A || B', inbox);
  await inbox.until(3);
  await sleep(500);
  stage.fact('got', inbox.sorted());
}

async function retry(stage) {
  const inbox = new Inbox();
  const client = await producer(stage);
  await lasting(stage, '*', inbox, { answer: () => inbox.messages.length > 2 });
  await client.send(stage.topic, 'stubborn', { tags: 'TagA', keys: 'key-1' });
  await inbox.until(3);
  stage.fact('seen', inbox.messages.map(message => `${message.body} ${message.tags} ${message.keys}`));
  stage.measure('first retry', inbox.timesMs[1] - inbox.timesMs[0]);
}

async function dead(stage) {
  const inbox = new Inbox();
  const client = await producer(stage);
  await lasting(stage, '*', inbox, { answer: () => false, maxReconsumeTimes: 1 });
  await client.send(stage.topic, 'hopeless', { tags: 'TagA' });
  await inbox.until(2);
  await sleep(2500);
  stage.fact('times seen', inbox.messages.length);
}

async function restart(stage) {
  const client = await producer(stage);
  const sendSome = async (word, count) => {
    for (let i = 0; i < count; i++) await client.send(stage.topic, `${word}-${i}`);
  };
  await sendSome('m', 20);
  const inbox = new Inbox();
  const first = await consumer(stage, '*', inbox);
  await inbox.until(20);
  await sleep(500);
  await first.shutdown();
  await sendSome('later', 8);
  const again = new Inbox();
  await lasting(stage, '*', again);
  await again.until(8);
  await sleep(500);
  stage.fact('after a restart', again.sorted());
}

/** Start a member of the group in a process of its own; gives a function that lets it leave. */
async function member(stage, take) {
  const words = [MEMBER, stage.namesrv, stage.topic, stage.group, stage.instance()];
  const stdio = ['pipe', 'pipe', 'inherit'];
  const child = spawn(process.execPath, words, { stdio, timeout: LIFE_MS, killSignal: 'SIGKILL' });
  const ended = once(child, 'exit');
  const leave = () => {
    child.stdin.end();
    return ended;
  };
  stage.onClose(leave);
  await new Promise((resolve, reject) => {
    ended.then(([code, signal]) => reject(new Error(`a member ended: ${code} ${signal}`)), reject);
    const lines = readline.createInterface({ input: child.stdout });
    lines.on('line', line => (line === 'ready' ? resolve() : take(Number(line))));
  });
  return leave;
}

/**
 * Each member has a process of its own: where several consume in one, shutting one down ends the
 * process by a segmentation fault now and then, with ours and with an original (1 of 24 runs each).
 *
 * This client neither chooses nor shows a queue, but sends to one after the other: while message
 * number n has the place n / 16 in its queue, 16 messages in a row went to 16 queues.
 */
async function shares(stage) {
  const client = await producer(stage);
  const send = async number => {
    const { offset } = await client.send(stage.topic, String(number));
    const round = Math.floor(number / QUEUE_COUNT);
    if (offset !== round) throw new Error(`message ${number} is at ${offset} of its queue`);
  };
  await rebalance(stage, send, take => member(stage, take));
  await sleep(COMMIT_MS);
}

/** A send to a topic that does not exist makes it, through the default topic. */
async function newTopic(stage) {
  const client = await producer(stage);
  const sent = await client.send(`${stage.topic}_new`, 'first');
  stage.fact('first send', sent.statusStr);
}

module.exports = {
  'cpp-sync': sync,
  'cpp-compressed': compressed,
  'cpp-tags': tags,
  'cpp-retry': retry,
  'cpp-dead': dead,
  'cpp-restart': restart,
  'cpp-rebalance': shares,
  'cpp-newtopic': newTopic,
};
