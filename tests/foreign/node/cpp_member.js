// A member of a group with rocketmq-nodejs 1.1.2, in a process of its own: see `shares` in cpp.js.
//
//   node cpp_member.js NAMESRV TOPIC GROUP INSTANCE
//
// Out: a line "ready" when it has joined, then the body of each message, before it is acknowledged.
// It leaves when its standard input ends.
'use strict';

const { PushConsumer } = require('rocketmq-nodejs');

async function main([nameServer, topic, group, instance]) {
  const client = new PushConsumer(group, instance, { nameServer });
  client.on('message', (message, ack) => {
    process.stdout.write(`${message.body}\n`);
    ack.done(true);
  });
  client.subscribe(topic, '*');
  await client.start();
  process.stdout.write('ready\n');
  process.stdin.resume().on('end', () => client.shutdown());
}

main(process.argv.slice(2));
