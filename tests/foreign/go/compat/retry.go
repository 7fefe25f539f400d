package main

import (
	"context"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

func order(topic, body string) *primitive.Message {
	m := message(topic, body, 0).WithTag("TagA").WithKeys([]string{"key-1", "key-2"})
	m.WithProperty("color", "blue")
	m.Flag = 9
	return m
}

// Fails twice, then succeeds: what the handler sees each time, and when.
func retry(s *stage) {
	topic := s.topic("t", 1)
	got := &inbox{}
	by := consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA"}
	s.start(s.idle(s.group("g")), topic, by,
		func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			got.take(batch...)
			if batch[0].ReconsumeTimes < 2 {
				return consumer.ConsumeRetryLater, nil
			}
			return consumer.ConsumeSuccess, nil
		})
	sent, err := s.producer().SendSync(context.Background(), order(topic, "stubborn"))
	must(err)
	got.await(3)
	isFromFirst := true
	for _, m := range got.all()[1:] {
		isFromFirst = isFromFirst &&
			m.GetProperty(primitive.PropertyOriginMessageId) == sent.OffsetMsgID
	}
	s.fact("seen", s.describedAll(got.all()))
	s.fact("names the first", isFromFirst)
	s.measure("first retry", got.times[1].Sub(got.times[0]).Milliseconds())
	s.measure("second retry", got.times[2].Sub(got.times[1]).Milliseconds())
}

// Fails always: after the maximum it lies in the dead letters.
func dead(s *stage) {
	given(s, 2, 3)
}

// No retry at all: the dead letters at once.
func deadNow(s *stage) {
	given(s, 0, 1)
}

func given(s *stage, retriesMax int32, timesSeen int) {
	topic, group := s.topic("t", 1), s.group("g")
	got := &inbox{}
	client := s.idle(group, consumer.WithMaxReconsumeTimes(retriesMax))
	s.start(client, topic, everything(), got.failing())
	_, err := s.producer().SendSync(context.Background(), order(topic, "hopeless"))
	must(err)
	got.await(timesSeen)
	letters := "%DLQ%" + group
	await("route of the dead letters", func() bool {
		_, err := s.admin.FetchPublishMessageQueues(context.Background(), letters)
		return err == nil
	})
	// The topic of the dead letters cannot be read until somebody allows it.
	s.makeTopic(letters, 1)
	s.fact("dead letters", s.describedAll(s.stored(letters, 0, 1)))
	// One more retry would come after a second.
	time.Sleep(1500 * time.Millisecond)
	s.fact("times seen", len(got.all()))
}
