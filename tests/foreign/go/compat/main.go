// What programs do with the original Go client, many small scenarios in one process.
//
//	compat NAMESRV BROKER PREFIX [SCENARIO...]
//
// The scenarios run side by side, since most of them wait most of the time; each uses topics and
// groups of its own, whose names begin with PREFIX. Out: one JSON object a line, as the Java program
// Compat prints them. "fact" is an outcome that is the same on every broker that behaves the same
// (no times, ids or addresses in it), "measure" a number that differs from run to run, "done" a
// scenario's end, "error" what ended one.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const atOnceMax = 10

type scenario struct {
	name string
	play func(*stage)
}

// Those that wait longest come first.
var scenarios = []scenario{
	{"rebalance", rebalance},
	{"spare", spare},
	{"dead", dead},
	{"retry", retry},
	{"broadcast", broadcast},
	{"delayed", delayed},
	{"deadnow", deadNow},
	{"orderly", orderly},
	{"concurrent", concurrent},
	{"poll", poll},
	{"tags", tags},
	{"sql", sql},
	{"wrongsql", wrongSQL},
	{"where", where},
	{"pull", pull},
	{"sync", sendSync},
	{"async", sendAsync},
	{"oneway", sendOneway},
	{"batch", sendBatch},
	{"compressed", compressed},
	{"sharded", sharded},
	{"refused", refused},
	{"newtopic", newTopic},
	{"missing", missing},
	{"admin", adminCalls},
}

func main() {
	level := os.Getenv("COMPAT_LOG")
	if level == "" {
		level = "fatal"
	}
	rlog.SetLogLevel(level)
	namesrv, broker, prefix, wanted := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	tools := newTools(namesrv, broker)
	places := make(chan struct{}, atOnceMax)
	var plays sync.WaitGroup
	for _, one := range scenarios {
		if len(wanted) > 0 && !contains(wanted, one.name) {
			continue
		}
		plays.Add(1)
		go func(one scenario) {
			defer plays.Done()
			places <- struct{}{}
			defer func() { <-places }()
			play(one, &stage{tools: tools, prefix: prefix, scenario: one.name})
		}(one)
	}
	plays.Wait()
}

func contains(words []string, word string) bool {
	for _, one := range words {
		if one == word {
			return true
		}
	}
	return false
}

func play(one scenario, s *stage) {
	begin := time.Now()
	defer func() {
		if failure := recover(); failure != nil {
			s.print(line{"event": "error", "error": fmt.Sprint(failure)})
		}
		s.close()
		s.print(line{"event": "done", "elapsedMs": time.Since(begin).Milliseconds()})
	}()
	one.play(s)
}
