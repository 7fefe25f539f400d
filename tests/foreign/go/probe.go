// The original Go client as a command line tool: a command in, one JSON object a line out.
//
//	probe send NAMESRV TOPIC COUNT [tags=A,B,C] [keys=PREFIX] [body=PREFIX]
//	probe consume NAMESRV TOPIC GROUP COUNT TIMEOUT_S [expression=*] [linger_ms=300]
//
// Several commands may follow each other, separated by "--". The lines have the names that the Java
// probe gives them: "event" is sent, received, done (a command's end) or error. The client does not
// send twice (no retries), so each message counted was accepted exactly once.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const failuresMax = 10

type line map[string]any

type probe struct {
	mutex sync.Mutex
	out   *json.Encoder
}

func (p *probe) print(l line) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if err := p.out.Encode(l); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func main() {
	rlog.SetLogLevel("error")
	p := &probe{out: json.NewEncoder(os.Stdout)}
	failed := false
	for _, command := range split(os.Args[1:]) {
		begin := time.Now()
		count, err := p.run(command)
		if err != nil {
			p.print(line{"event": "error", "command": command[0], "error": err.Error()})
			failed = true
			continue
		}
		p.print(line{"event": "done", "command": command[0], "count": count,
			"elapsedMs": time.Since(begin).Milliseconds()})
	}
	if failed {
		os.Exit(1)
	}
}

func split(args []string) [][]string {
	commands := [][]string{{}}
	for _, arg := range args {
		if arg == "--" {
			commands = append(commands, []string{})
			continue
		}
		last := len(commands) - 1
		commands[last] = append(commands[last], arg)
	}
	return commands
}

func (p *probe) run(command []string) (int, error) {
	words, options := []string{}, map[string]string{}
	for i, arg := range command {
		key, value, found := strings.Cut(arg, "=")
		if found && i > 2 {
			options[key] = value
		} else {
			words = append(words, arg)
		}
	}
	switch {
	case len(words) == 4 && words[0] == "send":
		return p.send(words, options)
	case len(words) == 6 && words[0] == "consume":
		return p.consume(words, options)
	}
	return 0, fmt.Errorf("no such command: %v", words)
}

func option(options map[string]string, key, without string) string {
	if value, found := options[key]; found {
		return value
	}
	return without
}

func instance(kind string) string {
	return fmt.Sprintf("%s-%d-%d", kind, os.Getpid(), time.Now().UnixNano())
}

func message(topic string, i int, options map[string]string) *primitive.Message {
	body := fmt.Sprintf("%s-%d", option(options, "body", "body"), i)
	m := primitive.NewMessage(topic, []byte(body))
	if tags, found := options["tags"]; found {
		all := strings.Split(tags, ",")
		m.WithTag(all[i%len(all)])
	}
	if keys, found := options["keys"]; found {
		m.WithKeys([]string{fmt.Sprintf("%s-%d", keys, i)})
	}
	return m
}

func (p *probe) send(words []string, options map[string]string) (int, error) {
	count, err := strconv.Atoi(words[3])
	if err != nil {
		return 0, err
	}
	client, err := rocketmq.NewProducer(
		producer.WithNameServer([]string{words[1]}),
		producer.WithGroupName("probe_producer"),
		producer.WithInstanceName(instance("producer")),
		producer.WithSendMsgTimeout(10*time.Second),
		producer.WithRetry(0),
	)
	if err != nil {
		return 0, err
	}
	if err := client.Start(); err != nil {
		return 0, err
	}
	defer client.Shutdown()
	failures := 0
	for i := 0; i < count && failures < failuresMax; i++ {
		m := message(words[2], i, options)
		result, err := client.SendSync(context.Background(), m)
		if err != nil {
			failures++
			p.print(line{"event": "error", "command": "send", "index": i, "error": err.Error()})
			continue
		}
		p.print(sent(result, m))
	}
	return count - failures, nil
}

func sent(result *primitive.SendResult, m *primitive.Message) line {
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = fmt.Sprintf("STATUS_%d", result.Status)
	}
	return line{
		"event": "sent", "status": status, "topic": result.MessageQueue.Topic,
		"brokerName": result.MessageQueue.BrokerName, "queueId": result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset, "msgId": result.MsgID,
		"offsetMsgId": result.OffsetMsgID, "body": string(m.Body),
	}
}

func (p *probe) consume(words []string, options map[string]string) (int, error) {
	count, err := strconv.Atoi(words[4])
	if err != nil {
		return 0, err
	}
	timeout, err := time.ParseDuration(words[5] + "s")
	if err != nil {
		return 0, err
	}
	linger, err := time.ParseDuration(option(options, "linger_ms", "300") + "ms")
	if err != nil {
		return 0, err
	}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer([]string{words[1]}),
		consumer.WithGroupName(words[3]),
		consumer.WithInstance(instance("consumer")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return 0, err
	}
	seen := &places{wanted: count, all: make(chan struct{}), known: map[string]bool{}}
	selector := consumer.MessageSelector{
		Type: consumer.TAG, Expression: option(options, "expression", "*"),
	}
	err = client.Subscribe(words[2], selector,
		func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, m := range batch {
				p.print(received(m))
				seen.add(m)
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return 0, err
	}
	if err := client.Start(); err != nil {
		return 0, err
	}
	defer client.Shutdown()
	select {
	case <-seen.all:
		// What should not come (duplicates, other tags) gets a moment to come.
		time.Sleep(linger)
	case <-time.After(timeout):
	}
	return seen.count(), nil
}

func received(m *primitive.MessageExt) line {
	return line{
		"event": "received", "topic": m.Topic, "brokerName": m.Queue.BrokerName,
		"queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset, "msgId": m.MsgId,
		"body": string(m.Body), "tags": m.GetTags(), "keys": m.GetKeys(),
		"reconsumeTimes": m.ReconsumeTimes, "bornTimestamp": m.BornTimestamp,
		"storeTimestamp": m.StoreTimestamp, "storeHost": m.StoreHost,
		"properties": m.GetProperties(),
	}
}

// places counts the different places (broker, queue, offset) that messages came from.
type places struct {
	mutex  sync.Mutex
	wanted int
	known  map[string]bool
	all    chan struct{}
}

func (s *places) add(m *primitive.MessageExt) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	place := fmt.Sprintf("%s:%d:%d", m.Queue.BrokerName, m.Queue.QueueId, m.QueueOffset)
	if s.known[place] {
		return
	}
	s.known[place] = true
	if len(s.known) == s.wanted {
		close(s.all)
	}
}

func (s *places) count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.known)
}
