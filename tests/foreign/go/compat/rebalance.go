package main

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const (
	queueCount = 16
	pause      = 10 * time.Millisecond
)

// member is a consumer and the queues that it last decided to have.
type member struct {
	client rocketmq.PushConsumer
	topic  string
	mutex  sync.Mutex
	isSet  bool
	own    []int
}

// allocate is the client's own way to share queues, watched.
func (m *member) allocate(group, clientID string, queues []*primitive.MessageQueue,
	clientIDs []string) []*primitive.MessageQueue {
	own := consumer.AllocateByAveragely(group, clientID, queues, clientIDs)
	if queues[0].Topic != m.topic {
		return own
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.isSet, m.own = true, nil
	for _, one := range own {
		m.own = append(m.own, one.QueueId)
	}
	return own
}

func join(s *stage, topic, group string, got *inbox) *member {
	joined := &member{topic: topic}
	joined.client = s.idle(group, consumer.WithStrategy(joined.allocate))
	s.start(joined.client, topic, everything(), got.taking())
	return joined
}

// shared waits until the members' shares are like that, each queue having one owner, and states it.
func (s *stage) shared(name string, members []*member, queues int, wanted ...int) {
	begin := time.Now()
	await(fmt.Sprintf("shares %v", wanted), func() bool {
		shares, owned := []int{}, map[int]bool{}
		for _, one := range members {
			one.mutex.Lock()
			for _, id := range one.own {
				owned[id] = true
			}
			if one.isSet {
				shares = append(shares, len(one.own))
			}
			one.mutex.Unlock()
		}
		sort.Ints(shares)
		// As many different queues as there are, and no more in all: each has one owner.
		return reflect.DeepEqual(shares, wanted) && len(owned) == queues
	})
	s.fact(name, wanted)
	s.measure(name, time.Since(begin).Milliseconds())
}

// A group grows from one consumer to three and shrinks to two while messages flow.
func rebalance(s *stage) {
	topic, group := s.topic("t", queueCount), s.group("g")
	got := &inbox{}
	sentCount, isFlowing := 0, atomic.Bool{}
	isFlowing.Store(true)
	var flow sync.WaitGroup
	flow.Add(1)
	client := s.producer()
	go func() {
		defer flow.Done()
		for ; isFlowing.Load(); sentCount++ {
			m := message(topic, fmt.Sprintf("m-%d", sentCount), sentCount%queueCount)
			if _, err := client.SendSync(context.Background(), m); err != nil {
				s.print(line{"event": "error", "error": err.Error()})
				return
			}
			time.Sleep(pause)
		}
	}()
	members := []*member{join(s, topic, group, got)}
	s.shared("of one", members, queueCount, 16)
	time.Sleep(time.Second)
	members = append(members, join(s, topic, group, got), join(s, topic, group, got))
	s.shared("of three", members, queueCount, 5, 5, 6)
	time.Sleep(2 * time.Second)
	must(members[0].client.Shutdown())
	s.shared("of two", members[1:], queueCount, 8, 8)
	time.Sleep(2 * time.Second)
	isFlowing.Store(false)
	flow.Wait()
	await("all messages came", func() bool { return got.account()["distinct"] == sentCount })
	s.fact("lost", sentCount-got.account()["distinct"].(int))
	s.measure("sent", int64(sentCount))
	s.measure("came again", int64(got.account()["again"].(int)))
}

// More consumers than queues: the last one has nothing to do until another leaves.
func spare(s *stage) {
	topic, group := s.topic("t", 2), s.group("g")
	got := &inbox{}
	members := []*member{}
	for i := 0; i < 3; i++ {
		members = append(members, join(s, topic, group, got))
	}
	s.shared("of three", members, 2, 0, 1, 1)
	s.send(topic, "m", 10, 2)
	got.await(10)
	s.fact("account", got.account())
	grown()
	must(members[0].client.Shutdown())
	s.shared("of two", members[1:], 2, 1, 1)
}
