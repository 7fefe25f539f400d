// Scenarios with npm rocketmq 2.0.1: an old fork of ali-ons whose calls are generators.
'use strict';

const co = require('co');
const { Consumer, Message, Producer } = require('rocketmq');
const { rebalance } = require('./rebalance');
const { Inbox, sleep } = require('./stage');

const SHARE_AGAIN_MS = 1000; // by its own clock only, as ali-ons
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

async function producer(stage) {
  const client = new Producer({
    namesrvAddr: stage.namesrv,
    producerGroup: `${stage.group}_p`,
    instanceName: stage.instance(),
    httpclient: {},
    logger: quiet,
  });
  client.on('error', error => process.stderr.write(`${stage.scenario}: ${error}\n`));
  await new Promise(resolve => client.ready(resolve));
  stage.onClose(() => co(client.close()));
  return client;
}

async function consumer(stage, expression, inbox, options = {}) {
  const client = new Consumer({
    namesrvAddr: stage.namesrv,
    consumerGroup: stage.group,
    instanceName: stage.instance(),
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    httpclient: {},
    logger: quiet,
    ...options,
  });
  client.on('error', error => process.stderr.write(`${stage.scenario}: ${error}\n`));
  client.subscribe(stage.topic, expression, function* take(message) {
    inbox.take(message);
  });
  await new Promise(resolve => client.ready(resolve));
  stage.onClose(() => co(client.close()));
  return client;
}

const send = (client, message) => co(client.send(message));

async function sendSome(stage, client, word, count) {
  for (let i = 0; i < count; i++) await send(client, new Message(stage.topic, 'Tag', `${word}-${i}`));
}

async function sync(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', inbox);
  const client = await producer(stage);
  const statuses = [];
  for (let i = 0; i < 4; i++) {
    const message = new Message(stage.topic, 'TagA', `bödy-${i}`);
    message.keys = [`key-${i}`, 'shared'];
    statuses.push((await send(client, message)).sendStatus);
  }
  await inbox.until(4);
  const messages = inbox.messages.slice().sort((a, b) => (String(a.body) < String(b.body) ? -1 : 1));
  stage.fact('statuses', statuses);
  stage.fact('messages', messages.map(message => stage.described(message)));
}

async function compressed(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', inbox);
  const client = await producer(stage);
  const big = 'x'.repeat(20_000);
  await send(client, new Message(stage.topic, 'Big', big));
  await inbox.until(1);
  stage.fact('body comes back', inbox.messages[0].body.toString() === big);
}

async function tags(stage) {
  const inbox = new Inbox();
  await consumer(stage, 'A || B', inbox);
  const client = await producer(stage);
  for (const tag of ['A', 'B', 'C', 'A']) await send(client, new Message(stage.topic, tag, `tag-${tag}`));
  await inbox.until(3);
  await sleep(500);
  stage.fact('got', inbox.sorted());
}

async function broadcast(stage) {
  const inboxes = [new Inbox(), new Inbox()];
  for (const inbox of inboxes) await consumer(stage, '*', inbox, { isBroadcast: true });
  // A broadcasting consumer begins at the end, so it must have asked for the end before.
  await sleep(1500);
  await sendSome(stage, await producer(stage), 'm', 12);
  for (const inbox of inboxes) await inbox.until(12);
  stage.fact('got', inboxes.map(inbox => inbox.sorted()));
}

async function restart(stage) {
  const client = await producer(stage);
  await sendSome(stage, client, 'm', 20);
  const inbox = new Inbox();
  const first = await consumer(stage, '*', inbox);
  await inbox.until(20);
  await sleep(200);
  await co(first.close());
  await sendSome(stage, client, 'later', 8);
  const again = new Inbox();
  await consumer(stage, '*', again);
  await again.until(8);
  await sleep(500);
  stage.fact('after a restart', again.sorted());
}

async function shares(stage) {
  const client = await producer(stage);
  const sendNumber = number => send(client, new Message(stage.topic, 'Tag', String(number)));
  await rebalance(stage, sendNumber, async take => {
    const inbox = { take: message => take(Number(message.body), message.queueId) };
    const member = await consumer(stage, '*', inbox, { rebalanceInterval: SHARE_AGAIN_MS });
    return () => co(member.close());
  });
}

module.exports = {
  'fork-sync': sync,
  'fork-compressed': compressed,
  'fork-tags': tags,
  'fork-broadcast': broadcast,
  'fork-restart': restart,
  'fork-rebalance': shares,
};
