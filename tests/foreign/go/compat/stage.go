package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	brokerName  = "broker-a"
	limit       = 60 * time.Second
	sendTimeout = 15 * time.Second
	lookAgain   = 20 * time.Millisecond
)

type line map[string]any

type handler = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

var (
	printing    sync.Mutex
	clientCount atomic.Int64
)

// tools is what all scenarios share.
type tools struct {
	namesrv, broker string
	admin           admin.Admin
}

func newTools(namesrv, broker string) *tools {
	client, err := admin.NewAdmin(
		admin.WithResolver(primitive.NewPassthroughResolver([]string{namesrv})))
	must(err)
	return &tools{namesrv, broker, client}
}

// stage is what one scenario holds: its names, its clients (ended with it) and its printer.
//
// A scenario fails by panic (must, await). Clients never send twice by themselves, so that counts
// are exact; texts printed have the run's prefix replaced by "P".
type stage struct {
	*tools
	prefix, scenario string
	mutex            sync.Mutex
	closers          []func()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *stage) print(l line) {
	l["scenario"] = s.scenario
	printing.Lock()
	defer printing.Unlock()
	must(json.NewEncoder(os.Stdout).Encode(l))
}

func (s *stage) fact(name string, value any) {
	s.print(line{"event": "fact", "name": name, "value": value})
}

func (s *stage) measure(name string, value int64) {
	s.print(line{"event": "measure", "name": name, "value": value})
}

// plain gives a text without what differs from run to run.
func (s *stage) plain(text string) string {
	return strings.ReplaceAll(text, s.prefix, "P")
}

// ---- names and topics ---------------------------------------------------------------------------

func (s *stage) name(word string) string {
	return s.prefix + "_" + s.scenario + "_" + word
}

// topic makes a new one; clients find its route when this returns.
func (s *stage) topic(word string, queues int) string {
	topic := s.name(word)
	s.makeTopic(topic, queues)
	return topic
}

func (s *stage) makeTopic(topic string, queues int) {
	must(s.admin.CreateTopic(context.Background(), admin.WithTopicCreate(topic),
		admin.WithBrokerAddrCreate(s.broker), admin.WithReadQueueNums(queues),
		admin.WithWriteQueueNums(queues)))
	await("route of "+topic, func() bool {
		found, err := s.admin.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil && len(found) == queues
	})
}

// group names a new one whose retry topic is there already: else its first retry is 30 s late.
func (s *stage) group(word string) string {
	group := s.name(word)
	s.makeTopic("%RETRY%"+group, 1)
	return group
}

// ---- clients ------------------------------------------------------------------------------------

func (s *stage) onClose(closer func() error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closers = append(s.closers, func() { _ = closer() })
}

func (s *stage) close() {
	for _, closer := range s.closers {
		closer()
	}
}

func (s *stage) instance() string {
	return fmt.Sprintf("%s-%d-%d", s.scenario, os.Getpid(), clientCount.Add(1))
}

func (s *stage) producer(options ...producer.Option) rocketmq.Producer {
	all := []producer.Option{
		producer.WithNameServer([]string{s.namesrv}),
		producer.WithGroupName(s.name("p")),
		producer.WithInstanceName(s.instance()),
		producer.WithSendMsgTimeout(sendTimeout),
		producer.WithRetry(0),
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
	}
	client, err := rocketmq.NewProducer(append(all, options...)...)
	must(err)
	must(client.Start())
	s.onClose(client.Shutdown)
	return client
}

// idle gives a push consumer that is not started yet.
func (s *stage) idle(group string, options ...consumer.Option) rocketmq.PushConsumer {
	all := []consumer.Option{
		consumer.WithNameServer([]string{s.namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(s.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}
	client, err := rocketmq.NewPushConsumer(append(all, options...)...)
	must(err)
	return client
}

// start subscribes and starts; the consumer ends with the scenario.
func (s *stage) start(client rocketmq.PushConsumer, topic string, by consumer.MessageSelector,
	handle handler) {
	must(client.Subscribe(topic, by, handle))
	must(client.Start())
	s.onClose(client.Shutdown)
}

// reader gives a pull consumer of one topic.
func (s *stage) reader(topic, group string, by consumer.MessageSelector) rocketmq.PullConsumer {
	client, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer([]string{s.namesrv}),
		consumer.WithGroupName(group),
		consumer.WithInstance(s.instance()),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	must(client.Subscribe(topic, by))
	must(client.Start())
	s.onClose(client.Shutdown)
	return client
}

// grown waits until a consumer may be shut down. Its first heart beat, a second after the start, can
// be under way when it ends: then it stays a member for two minutes, a fault of this client.
func grown() {
	time.Sleep(1500 * time.Millisecond)
}

func everything() consumer.MessageSelector {
	return consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
}

// ---- messages -----------------------------------------------------------------------------------

func queue(topic string, id int) *primitive.MessageQueue {
	return &primitive.MessageQueue{Topic: topic, BrokerName: brokerName, QueueId: id}
}

// message gives one that the producer sends to this queue.
func message(topic, body string, id int) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(body))
	m.Queue = queue(topic, id)
	return m
}

// send puts `count` messages into the queues by turns.
func (s *stage) send(topic, word string, count, queues int) {
	client := s.producer()
	for i := 0; i < count; i++ {
		body := fmt.Sprintf("%s-%d", word, i)
		_, err := client.SendSync(context.Background(), message(topic, body, i%queues))
		must(err)
	}
}

// stored gives all messages that a queue holds, once it holds this many.
func (s *stage) stored(topic string, id, count int) []*primitive.MessageExt {
	client := s.reader(topic, s.name(fmt.Sprintf("reader-%d", clientCount.Add(1))), everything())
	found := []*primitive.MessageExt{}
	await(fmt.Sprintf("%d messages in queue %d of %s", count, id, topic), func() bool {
		offset := int64(len(found))
		pulled, err := client.PullFrom(context.Background(), queue(topic, id), offset, 32)
		must(err)
		if pulled.Status == primitive.PullFound {
			found = append(found, pulled.GetMessageExts()...)
		}
		return len(found) >= count
	})
	return found
}

func await(what string, claim func() bool) {
	deadline := time.Now().Add(limit)
	for !claim() {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("%s: not so after %v", what, limit))
		}
		time.Sleep(lookAgain)
	}
}

// described gives what a message says that does not differ from run to run.
func (s *stage) described(m *primitive.MessageExt) line {
	properties := map[string]string{}
	for key, value := range m.GetProperties() {
		switch key {
		case primitive.PropertyMinOffset, primitive.PropertyMaxOffset,
			primitive.PropertyConsumeStartTime:
			// The client itself adds these.
		case primitive.PropertyUniqueClientMessageIdKeyIndex, primitive.PropertyOriginMessageId:
			properties[key] = "an id"
		default:
			properties[key] = s.plain(value)
		}
	}
	return line{"topic": s.plain(m.Topic), "body": string(m.Body), "flag": m.Flag,
		"reconsumeTimes": m.ReconsumeTimes, "sysFlag": m.SysFlag, "properties": properties,
		"bornAt": strings.Split(m.BornHost, ":")[0], "storedAt": m.StoreHost == s.broker}
}

func (s *stage) describedAll(messages []*primitive.MessageExt) []line {
	all := []line{}
	for _, m := range messages {
		all = append(all, s.described(m))
	}
	return all
}
