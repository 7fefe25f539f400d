package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// Every status of a pull by queue and offset, and where it says to go on.
func pull(s *stage) {
	topic := s.topic("t", 1)
	client := s.producer()
	for i := 0; i < 40; i++ {
		m := message(topic, fmt.Sprintf("m-%02d", i), 0).WithTag([]string{"A", "B"}[i/30])
		_, err := client.SendSync(context.Background(), m)
		must(err)
	}
	s.stored(topic, 0, 40)
	all := s.reader(topic, s.group("all"), everything())
	for _, step := range []struct {
		name   string
		offset int64
		count  int
	}{{"first", 0, 10}, {"last", 38, 32}, {"behind it", 50, 32}} {
		s.fact(step.name, pulled(all, topic, step.offset, step.count))
	}
	by := consumer.MessageSelector{Type: consumer.TAG, Expression: "B"}
	some := s.reader(topic, s.group("some"), by)
	s.fact("first match", pulled(some, topic, 0, 10))
	by.Expression = "C"
	none := s.reader(topic, s.group("none"), by)
	s.fact("no match", pulled(none, topic, 0, 10))
	// At the end of the queue the broker holds the pull until a message comes.
	held := make(chan line)
	go func() { held <- pulled(all, topic, 40, 32) }()
	select {
	case early := <-held:
		s.fact("held", early)
	case <-time.After(300 * time.Millisecond):
		s.send(topic, "waking", 1, 1)
		s.fact("held", <-held)
	}
}

func pulled(client interface {
	PullFrom(context.Context, *primitive.MessageQueue, int64, int) (*primitive.PullResult, error)
}, topic string, offset int64, count int) line {
	result, err := client.PullFrom(context.Background(), queue(topic, 0), offset, count)
	must(err)
	bodies := []string{}
	for _, m := range result.GetMessageExts() {
		bodies = append(bodies, string(m.Body))
	}
	return line{"status": result.Status, "bodies": bodies, "next": result.NextBeginOffset,
		"min": result.MinOffset, "max": result.MaxOffset}
}

// A pull consumer that polls and acknowledges: the group's progress is kept by the broker.
func poll(s *stage) {
	topic, group := s.topic("t", 2), s.group("g")
	s.send(topic, "m", 20, 2)
	s.fact("got", drained(s, topic, group, 20))
	s.send(topic, "later", 4, 2)
	s.fact("after a restart", drained(s, topic, group, 4))
}

func drained(s *stage, topic, group string, count int) []string {
	client := s.reader(topic, group, everything())
	got := &inbox{}
	await(fmt.Sprintf("%d messages polled", count), func() bool {
		request, err := client.Poll(context.Background(), time.Second)
		if err == nil {
			got.take(request.GetMsgList()...)
			client.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
		return len(got.all()) >= count
	})
	grown()
	must(client.PersistOffset(context.Background(), topic))
	must(client.Shutdown())
	return got.sorted()
}
