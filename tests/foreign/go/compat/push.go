package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func concurrent(s *stage) {
	topic, group := s.topic("t", 4), s.group("g")
	s.send(topic, "m", 200, 4)
	got := &inbox{}
	first := s.idle(group)
	must(first.Subscribe(topic, everything(), got.taking()))
	must(first.Start())
	got.await(200)
	s.send(topic, "later", 40, 4)
	got.await(240)
	s.fact("account", got.account())
	grown()
	must(first.Shutdown())
	again := &inbox{}
	s.start(s.idle(group), topic, everything(), again.taking())
	s.send(topic, "last", 4, 4)
	again.await(4)
	s.fact("after a restart", again.sorted())
}

func orderly(s *stage) {
	topic := s.topic("t", 4)
	s.send(topic, "m", 100, 4)
	got := &inbox{}
	failures := []string{}
	client := s.idle(s.group("g"), consumer.WithConsumerOrder(true),
		consumer.WithSuspendCurrentQueueTimeMillis(200*time.Millisecond))
	s.start(client, topic, everything(),
		func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			m := batch[0]
			// This queue's messages come one after the other, so the list needs no lock.
			if string(m.Body) == "m-42" && len(failures) < 2 {
				failures = append(failures, string(m.Body))
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			got.take(batch...)
			return consumer.ConsumeSuccess, nil
		})
	got.await(100)
	offsets := map[int][]int64{}
	for _, m := range got.all() {
		offsets[m.Queue.QueueId] = append(offsets[m.Queue.QueueId], m.QueueOffset)
	}
	s.fact("offsets by queue", offsets)
	s.fact("failed", failures)
}

func broadcast(s *stage) {
	topic, group := s.topic("t", 4), s.group("g")
	inboxes := []*inbox{{}, {}}
	for _, got := range inboxes {
		client := s.idle(group, consumer.WithConsumerModel(consumer.BroadCasting))
		s.start(client, topic, everything(), got.failing())
	}
	s.send(topic, "m", 20, 4)
	for _, got := range inboxes {
		got.await(20)
	}
	// A retry would come after the first level for retries, one second.
	time.Sleep(2500 * time.Millisecond)
	s.fact("accounts", []line{inboxes[0].account(), inboxes[1].account()})
}

// failing gives a handler that takes everything and wants it again later.
func (i *inbox) failing() handler {
	return func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		i.take(batch...)
		return consumer.ConsumeRetryLater, nil
	}
}

func tags(s *stage) {
	topic := s.topic("t", 1)
	inboxes := map[string]*inbox{}
	// "Aa" and "BB" have one hash: the broker gives both, the client keeps what was asked for.
	for i, expression := range []string{"A || B", "Aa", "*"} {
		inboxes[expression] = &inbox{}
		by := consumer.MessageSelector{Type: consumer.TAG, Expression: expression}
		client := s.idle(s.group(fmt.Sprintf("g%d", i)))
		s.start(client, topic, by, inboxes[expression].taking())
	}
	client := s.producer()
	for _, tag := range []string{"A", "B", "C", "Aa", "BB", ""} {
		m := message(topic, "tag-"+tag, 0)
		if tag != "" {
			m.WithTag(tag)
		}
		_, err := client.SendSync(context.Background(), m)
		must(err)
	}
	inboxes["*"].await(6)
	inboxes["A || B"].await(2)
	inboxes["Aa"].await(1)
	for expression, got := range inboxes {
		s.fact(expression, got.sorted())
	}
}

func sql(s *stage) {
	topic := s.topic("t", 1)
	wanted := map[string]int{
		"n BETWEEN 3 AND 5 AND color IN ('red', 'green')": 2,
		"TAGS = 'B' AND n > 6.5":                          2,
		"late IS NOT NULL OR n <> n":                      1,
		"NOT (n > 2)":                                     3,
	}
	inboxes := map[string]*inbox{}
	for expression := range wanted {
		inboxes[expression] = &inbox{}
		by := consumer.MessageSelector{Type: consumer.SQL92, Expression: expression}
		client := s.idle(s.group(fmt.Sprintf("g%d", len(inboxes))))
		s.start(client, topic, by, inboxes[expression].taking())
	}
	client := s.producer()
	colors := []string{"red", "green", "blue"}
	for i := 0; i <= 10; i++ {
		m := message(topic, fmt.Sprintf("n-%d", i), 0)
		if i == 10 {
			m.WithProperty("late", "yes")
		} else {
			m.WithTag([]string{"A", "B"}[i%2])
			m.WithProperty("n", fmt.Sprint(i))
			m.WithProperty("color", colors[i%3])
		}
		_, err := client.SendSync(context.Background(), m)
		must(err)
	}
	for expression, count := range wanted {
		inboxes[expression].await(count)
		s.fact(expression, inboxes[expression].sorted())
	}
}

// The broker refuses the heart beat's expression; this client starts nevertheless and gets nothing.
func wrongSQL(s *stage) {
	topic := s.topic("t", 1)
	got := &inbox{}
	by := consumer.MessageSelector{Type: consumer.SQL92, Expression: "n > "}
	client := s.idle(s.group("g"))
	must(client.Subscribe(topic, by, got.taking()))
	s.fact("start", s.outcome(client.Start()))
	s.onClose(client.Shutdown)
	s.send(topic, "m", 5, 1)
	s.stored(topic, 0, 5)
	time.Sleep(1500 * time.Millisecond)
	s.fact("account", got.account())
}

// Where a group begins that has no offsets yet, on a young topic.
func where(s *stage) {
	topic := s.topic("t", 1)
	s.send(topic, "m", 5, 1)
	from := map[string]consumer.ConsumeFromWhere{
		"first": consumer.ConsumeFromFirstOffset,
		"last":  consumer.ConsumeFromLastOffset,
		"time":  consumer.ConsumeFromTimestamp,
	}
	for word, position := range from {
		got := &inbox{}
		client := s.idle(s.group(word), consumer.WithConsumeFromWhere(position))
		s.start(client, topic, everything(), got.taking())
		got.await(5)
		s.fact(word, got.sorted())
	}
}

// A consumer of a topic that does not exist.
func missing(s *stage) {
	client := s.idle(s.group("g"))
	must(client.Subscribe(s.name("t"), everything(), (&inbox{}).taking()))
	err := client.Start()
	s.fact("is refused", err != nil)
	if err != nil {
		words := strings.Fields(s.plain(err.Error()))
		sort.Strings(words)
		s.fact("names the topic", contains(words, "topic="+s.plain(s.name("t"))))
	}
}
