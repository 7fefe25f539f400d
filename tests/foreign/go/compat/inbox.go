package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// inbox keeps the messages that handlers received, in the order of their coming, and when.
type inbox struct {
	mutex    sync.Mutex
	messages []*primitive.MessageExt
	times    []time.Time
}

func (i *inbox) take(batch ...*primitive.MessageExt) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	for _, m := range batch {
		i.messages = append(i.messages, m)
		i.times = append(i.times, time.Now())
	}
}

// taking gives a handler that takes everything and is content with it.
func (i *inbox) taking() handler {
	return func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		i.take(batch...)
		return consumer.ConsumeSuccess, nil
	}
}

func (i *inbox) all() []*primitive.MessageExt {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	return append([]*primitive.MessageExt{}, i.messages...)
}

// await returns when this many came, doubled ones included.
func (i *inbox) await(count int) {
	await(fmt.Sprintf("%d messages", count), func() bool { return len(i.all()) >= count })
}

func (i *inbox) bodies() []string {
	bodies := []string{}
	for _, m := range i.all() {
		bodies = append(bodies, string(m.Body))
	}
	return bodies
}

// sorted gives the bodies; a message that came twice is there twice.
func (i *inbox) sorted() []string {
	bodies := i.bodies()
	sort.Strings(bodies)
	return bodies
}

// account says how many different messages came, and how many came again.
func (i *inbox) account() line {
	different := map[string]bool{}
	bodies := i.bodies()
	for _, body := range bodies {
		different[body] = true
	}
	return line{"distinct": len(different), "again": len(bodies) - len(different)}
}
