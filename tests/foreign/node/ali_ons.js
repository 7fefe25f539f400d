// Scenarios with ali-ons 3.12: pure JavaScript, JSON headers with numbers in them.
'use strict';

const { Consumer, Message, Producer } = require('ali-ons');
const { rebalance } = require('./rebalance');
const { Inbox, sleep } = require('./stage');

const FROM_FIRST = 'CONSUME_FROM_FIRST_OFFSET';
const httpclient = {}; // asserted by the client, used only to look for a name server by HTTP
// It does not read the broker's notice of a changed group, but looks by its own clock: 10 s by itself.
const SHARE_AGAIN_MS = 1000;
const quiet = { info() {}, warn() {}, error() {}, debug() {} };

async function producer(stage, options = {}) {
  const client = new Producer({
    httpclient,
    nameSrv: stage.namesrv,
    producerGroup: `${stage.group}_p`,
    instanceName: stage.instance(),
    retryTimesWhenSendFailed: 0,
    logger: quiet,
    ...options,
  });
  client.on('error', error => process.stderr.write(`${stage.scenario}: ${error}\n`));
  await client.ready();
  stage.onClose(() => client.close());
  return client;
}

async function consumer(stage, expression, handle, options = {}) {
  const client = new Consumer({
    httpclient,
    nameSrv: stage.namesrv,
    consumerGroup: stage.group,
    instanceName: stage.instance(),
    consumeFromWhere: FROM_FIRST,
    logger: quiet,
    ...options,
  });
  client.on('error', error => process.stderr.write(`${stage.scenario}: ${error}\n`));
  client.subscribe(stage.topic, expression, handle);
  await client.ready();
  stage.onClose(() => client.close());
  return client;
}

async function send(stage, client, word, count) {
  for (let i = 0; i < count; i++) {
    await client.send(new Message(stage.topic, 'Tag', `${word}-${i}`));
  }
}

async function sync(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => inbox.take(message));
  const client = await producer(stage);
  const ids = {};
  const statuses = [];
  for (let i = 0; i < 8; i++) {
    const message = new Message(stage.topic, 'TagA', `bödy-${i}`);
    message.keys = [`key-${i}`, 'shared'];
    message.properties.color = `blue-${i}`;
    message.flag = 7;
    const sent = await client.send(message);
    statuses.push(sent.sendStatus);
    ids[`bödy-${i}`] = sent.msgId;
  }
  stage.fact('statuses', statuses);
  await inbox.until(8);
  const messages = inbox.messages.slice().sort((a, b) => (String(a.body) < String(b.body) ? -1 : 1));
  stage.fact('messages', messages.map(message => stage.described(message)));
  stage.fact('ids', messages.every(message => message.msgId === ids[message.body.toString()]));
  stage.fact('queues', [...new Set(messages.map(message => message.queueId))].sort());
}

async function untagged(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => inbox.take(message));
  const client = await producer(stage);
  await client.send(new Message(stage.topic, 'untagged'));
  await inbox.until(1);
  stage.fact('messages', inbox.messages.map(message => stage.described(message)));
}

async function compressed(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => inbox.take(message));
  const client = await producer(stage);
  const big = 'x'.repeat(20_000);
  await client.send(new Message(stage.topic, 'Big', big));
  await inbox.until(1);
  stage.fact('body comes back', inbox.messages[0].body.toString() === big);
  stage.fact('stored small', inbox.messages[0].storeSize < 2_000);
}

async function sharded(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => inbox.take(message));
  const client = await producer(stage);
  // Keys whose hash does not lead to queue 0: those are spread over all, a fault of this client.
  const keys = ['a', 'd', 'e', 'f', 'g'];
  for (let step = 0; step < 5; step++) {
    for (const key of keys) {
      const message = new Message(stage.topic, 'Order', `${key}-${step}`);
      message.shardingKey = key;
      await client.send(message);
    }
  }
  await inbox.until(keys.length * 5);
  const perKey = {};
  for (const message of inbox.messages) {
    const key = message.body.toString()[0];
    (perKey[key] = perKey[key] || []).push(`${message.body} ${message.queueId}`);
  }
  stage.fact('orders', perKey);
}

async function delayed(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => inbox.take(message));
  const client = await producer(stage);
  for (const level of [0, 1, 2, 99]) {
    const message = new Message(stage.topic, 'Late', `level-${level}`);
    message.delayTimeLevel = level;
    await client.send(message);
  }
  await inbox.until(4);
  const facts = {};
  inbox.messages.forEach((message, i) => {
    const described = stage.described(message);
    delete described.properties.REAL_QID; // the client chooses a queue by chance
    facts[message.body.toString()] = described;
    stage.measure(message.body.toString(), inbox.timesMs[i] - message.bornTimestamp);
  });
  stage.fact('messages', facts);
}

async function tags(stage) {
  const inbox = new Inbox();
  await consumer(stage, 'A || B', async message => inbox.take(message));
  const client = await producer(stage);
  for (const tag of ['A', 'B', 'C', 'D', 'A']) {
    await client.send(new Message(stage.topic, tag, `tag-${tag}`));
  }
  await inbox.until(3);
  await sleep(500);
  stage.fact('got', inbox.sorted());
}

async function sql(stage) {
  const inbox = new Inbox();
  const by = { expressionType: 'SQL92', subString: "n BETWEEN 3 AND 5 AND TAGS = 'A'" };
  await consumer(stage, by, async message => inbox.take(message));
  const client = await producer(stage);
  for (let i = 0; i < 10; i++) {
    const message = new Message(stage.topic, ['B', 'A'][i % 2], `n-${i}`);
    message.properties.n = String(i);
    await client.send(message);
  }
  await inbox.until(2);
  await sleep(500);
  stage.fact('got', inbox.sorted());
}

async function retry(stage) {
  const inbox = new Inbox();
  await consumer(stage, '*', async message => {
    inbox.take({ ...stage.described(message), body: message.body });
    return message.reconsumeTimes < 2 ? Consumer.ACTION_RETRY : undefined;
  });
  const client = await producer(stage);
  const message = new Message(stage.topic, 'TagA', 'stubborn');
  message.keys = ['key-1'];
  message.properties.color = 'blue';
  await client.send(message);
  await inbox.until(1);
  // Every retry goes to the handler of the retry topic, which forgets what the own one answers:
  // a fault of this client, so that a second retry never comes.
  await inbox.until(2);
  stage.fact('seen', inbox.messages.map(seen => ({ ...seen, body: seen.body.toString() })));
  stage.measure('first retry', inbox.timesMs[1] - inbox.timesMs[0]);
}

async function dead(stage) {
  const inbox = new Inbox();
  const options = { maxReconsumeTimes: 0 };
  await consumer(stage, '*', async message => {
    inbox.take(message);
    return Consumer.ACTION_RETRY;
  }, options);
  await send(stage, await producer(stage), 'hopeless', 1);
  await inbox.until(1);
  await sleep(1500);
  stage.fact('times seen', inbox.messages.length);
}

async function broadcast(stage) {
  const inboxes = [new Inbox(), new Inbox()];
  for (const inbox of inboxes) {
    await consumer(stage, '*', async message => inbox.take(message), { isBroadcast: true });
  }
  // A broadcasting consumer begins at the end, so it must have asked for the end before.
  await sleep(1500);
  await send(stage, await producer(stage), 'm', 12);
  for (const inbox of inboxes) await inbox.until(12);
  stage.fact('got', inboxes.map(inbox => inbox.sorted()));
}

async function restart(stage) {
  const client = await producer(stage);
  await send(stage, client, 'm', 40);
  const inbox = new Inbox();
  const first = await consumer(stage, '*', async message => inbox.take(message));
  await inbox.until(40);
  // The last results are noted a moment after the handler has ended.
  await sleep(200);
  await first.close();
  await send(stage, client, 'later', 8);
  const again = new Inbox();
  await consumer(stage, '*', async message => again.take(message));
  await again.until(8);
  await sleep(500);
  stage.fact('first', inbox.sorted());
  stage.fact('after a restart', again.sorted());
}

async function shares(stage) {
  const client = await producer(stage);
  const send = number => client.send(new Message(stage.topic, 'Tag', String(number)));
  await rebalance(stage, send, async take => {
    const handle = async message => take(Number(message.body), message.queueId);
    const member = await consumer(stage, '*', handle, { rebalanceInterval: SHARE_AGAIN_MS });
    return () => member.close();
  });
}

/** This client makes no topics: a send to one that does not exist must fail, and name it. */
async function missing(stage) {
  const client = await producer(stage);
  const topic = `${stage.topic}_missing`;
  const outcome = await client.send(new Message(topic, 'Tag', 'lost')).then(
    () => 'ok',
    error => stage.plain(error.message).split(',')[0].split('\n'),
  );
  stage.fact('outcome', outcome);
}

module.exports = {
  'ali-sync': sync,
  'ali-untagged': untagged,
  'ali-compressed': compressed,
  'ali-sharded': sharded,
  'ali-delayed': delayed,
  'ali-tags': tags,
  'ali-sql': sql,
  'ali-retry': retry,
  'ali-dead': dead,
  'ali-broadcast': broadcast,
  'ali-restart': restart,
  'ali-rebalance': shares,
  'ali-missing': missing,
};
