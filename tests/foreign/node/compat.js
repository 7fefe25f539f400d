// What programs do with the unmodified Node clients, many small scenarios in one process.
//
//   node compat.js NAMESRV PREFIX SCENARIO...
//
// The scenarios run side by side; those of the native client (cpp-) in a run of their own, and rebalance
// behind the others, since its flow of messages would make those late whose time is taken. Each has a
// topic of its own with four queues (rebalance: 16) and a group with its retry topic, made beforehand
// (these clients cannot make topics): PREFIX_SCENARIO_t and _g. Out: one JSON object a line, as the
// Java program Compat prints them: "fact", "measure", "done", "error".
'use strict';

const { Stage } = require('./stage');

const all = {
  ...require('./ali_ons'),
  ...require('./fork'),
  ...require('./cpp'),
};

async function play(stage, scenario) {
  const begin = Date.now();
  try {
    await scenario(stage);
  } catch (error) {
    stage.print({ event: 'error', error: String((error && error.stack) || error) });
  }
  await stage.close();
  stage.print({ event: 'done', elapsedMs: Date.now() - begin });
}

async function main([namesrv, prefix, ...wanted]) {
  // The clients do not keep the process alive while they connect.
  const alive = setInterval(() => {}, 1000);
  const isFlow = name => name.endsWith('-rebalance');
  for (const names of [wanted.filter(name => !isFlow(name)), wanted.filter(isFlow)]) {
    await Promise.all(names.map(name => play(new Stage(namesrv, prefix, name), all[name])));
  }
  clearInterval(alive);
  // The pure clients leave timers and connections behind. The native one leaves nothing, but hangs
  // in exit(), so a run with it ends by itself.
  if (!wanted.some(name => name.startsWith('cpp-'))) process.exit(0);
}

main(process.argv.slice(2));
