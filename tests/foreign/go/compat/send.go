package main

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const mib = 1 << 20

func sendSync(s *stage) {
	topic := s.topic("t", 4)
	client := s.producer()
	places, isNamedByClient := []string{}, true
	for i := 0; i < 4; i++ {
		m := message(topic, fmt.Sprintf("bödy-%d", i), i%2)
		m.WithTag("TagA").WithKeys([]string{fmt.Sprintf("key-%d", i), "shared"})
		m.WithProperty("color", fmt.Sprintf("blue-%d", i))
		m.Flag = 7
		result, err := client.SendSync(context.Background(), m)
		must(err)
		places = append(places, fmt.Sprintf("%d %s %d %d", result.Status,
			result.MessageQueue.BrokerName, result.MessageQueue.QueueId, result.QueueOffset))
		isNamedByClient = isNamedByClient &&
			result.MsgID == m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex)
	}
	s.fact("places", places)
	s.fact("msgId is the client's", isNamedByClient)
	s.fact("stored", s.describedAll(s.stored(topic, 1, 2)))
}

func sendAsync(s *stage) {
	topic := s.topic("t", 1)
	client := s.producer()
	var mutex sync.Mutex
	var answers sync.WaitGroup
	statuses := map[string]int{}
	for i := 0; i < 50; i++ {
		answers.Add(1)
		must(client.SendAsync(context.Background(),
			func(_ context.Context, result *primitive.SendResult, err error) {
				defer answers.Done()
				mutex.Lock()
				defer mutex.Unlock()
				statuses[fmt.Sprint(result.Status, err)]++
			}, message(topic, fmt.Sprintf("m-%02d", i), 0)))
	}
	answers.Wait()
	s.fact("statuses", statuses)
	s.fact("stored", sortedBodies(s.stored(topic, 0, 50)))
}

func sendOneway(s *stage) {
	topic := s.topic("t", 1)
	client := s.producer()
	for i := 0; i < 20; i++ {
		must(client.SendOneWay(context.Background(), message(topic, fmt.Sprintf("m-%02d", i), 0)))
	}
	s.fact("stored", sortedBodies(s.stored(topic, 0, 20)))
}

func sortedBodies(messages []*primitive.MessageExt) []string {
	bodies := []string{}
	for _, m := range messages {
		bodies = append(bodies, string(m.Body))
	}
	sort.Strings(bodies)
	return bodies
}

func sendBatch(s *stage) {
	topic := s.topic("t", 1)
	client := s.producer(producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	batch := []*primitive.Message{}
	for i := 0; i < 10; i++ {
		m := primitive.NewMessage(topic, []byte(fmt.Sprintf("batch-%d", i)))
		m.WithTag([]string{"Even", "Odd"}[i%2]).WithKeys([]string{fmt.Sprintf("key-%d", i)})
		m.WithProperty("n", fmt.Sprint(i))
		batch = append(batch, m)
	}
	result, err := client.SendSync(context.Background(), batch...)
	must(err)
	s.fact("answer", fmt.Sprintf("%d %d", result.Status, result.QueueOffset))
	s.fact("offset ids", len(strings.Split(result.OffsetMsgID, ",")))
	s.fact("stored", s.describedAll(s.stored(topic, 0, 10)))
}

// A body above 4 KB is compressed by the client.
func compressed(s *stage) {
	topic := s.topic("t", 1)
	big := bytes.Repeat([]byte("x"), 20_000)
	client := s.producer()
	_, err := client.SendSync(context.Background(), message(topic, string(big), 0))
	must(err)
	found := s.stored(topic, 0, 1)[0]
	s.fact("body comes back", bytes.Equal(found.Body, big))
	s.fact("stored small", found.StoreSize < 2_000)
}

func sharded(s *stage) {
	topic := s.topic("t", 4)
	client := s.producer(producer.WithQueueSelector(producer.NewHashQueueSelector()))
	counts := map[int]int{}
	for step := 0; step < 5; step++ {
		for order := 0; order < 6; order++ {
			body := fmt.Sprintf("order-%d-step-%d", order, step)
			m := primitive.NewMessage(topic, []byte(body))
			m.WithShardingKey(fmt.Sprintf("order-%d", order))
			result, err := client.SendSync(context.Background(), m)
			must(err)
			counts[result.MessageQueue.QueueId]++
		}
	}
	queues := map[int][]string{}
	for id, count := range counts {
		for _, m := range s.stored(topic, id, count) {
			queues[id] = append(queues[id], string(m.Body))
		}
	}
	s.fact("queues", queues)
}

func delayed(s *stage) {
	topic := s.topic("t", 1)
	got := &inbox{}
	s.start(s.idle(s.group("g")), topic, everything(), got.taking())
	client := s.producer()
	answers := []string{}
	levels := []int{0, 1, 2, 5, 99}
	for _, level := range levels {
		m := message(topic, fmt.Sprintf("level-%d", level), 0).WithTag("Late")
		m.WithDelayTimeLevel(level)
		result, err := client.SendSync(context.Background(), m)
		must(err)
		answers = append(answers, fmt.Sprintf("%d %s", result.Status,
			s.plain(result.MessageQueue.Topic)))
	}
	s.fact("answers", answers)
	got.await(len(levels))
	messages := map[string]line{}
	for i, m := range got.all() {
		messages[string(m.Body)] = s.described(m)
		s.measure(string(m.Body), got.times[i].UnixMilli()-m.BornTimestamp)
	}
	s.fact("messages", messages)
}

func refused(s *stage) {
	topic := s.topic("t", 1)
	client := s.producer(producer.WithCompressMsgBodyOverHowmuch(64 * mib))
	send := func(m *primitive.Message) string {
		_, err := client.SendSync(context.Background(), m)
		return s.outcome(err)
	}
	wide := message(topic, "wide", 0)
	wide.WithProperty("wide", strings.Repeat("x", 33_000))
	s.fact("wide properties", send(wide))
	s.fact("4 MiB", send(message(topic, strings.Repeat("x", 4*mib), 0)))
	s.fact("more", send(message(topic, strings.Repeat("x", 4*mib+1), 0)))
	s.fact("queue 99", send(message(topic, "stray", 99)))
	s.fact("stored", len(s.stored(topic, 0, 1)))
}

// outcome keeps of an error what the broker said first: the code, where the client shows it.
func (s *stage) outcome(err error) string {
	if err == nil {
		return "ok"
	}
	text, _, _ := strings.Cut(s.plain(err.Error()), ", ")
	text, _, _ = strings.Cut(text, " DESC")
	return strings.ReplaceAll(text, s.broker, "BROKER")
}

func newTopic(s *stage) {
	topic := s.name("t")
	client := s.producer(producer.WithDefaultTopicQueueNums(3),
		producer.WithQueueSelector(producer.NewRoundRobinQueueSelector()))
	result, err := client.SendSync(context.Background(),
		primitive.NewMessage(topic, []byte("first")))
	must(err)
	s.fact("first send", result.Status)
	var queues []*primitive.MessageQueue
	await("route of a topic made by a send", func() bool {
		queues, err = s.admin.FetchPublishMessageQueues(context.Background(), topic)
		return err == nil
	})
	s.fact("queues", len(queues))
}

func adminCalls(s *stage) {
	topic := s.topic("t", 3)
	list, err := s.admin.FetchAllTopicList(context.Background())
	must(err)
	s.fact("topic is listed", contains(list.TopicList, topic))
	queues, err := s.admin.FetchPublishMessageQueues(context.Background(), topic)
	must(err)
	s.fact("queues", len(queues))
	s.start(s.idle(s.group("g")), topic, everything(), (&inbox{}).taking())
	await("group is listed", func() bool {
		groups, err := s.admin.GetAllSubscriptionGroup(context.Background(), s.broker, sendTimeout)
		must(err)
		_, isKnown := groups.SubscriptionGroupTable[s.name("g")]
		return isKnown
	})
	groups, err := s.admin.GetAllSubscriptionGroup(context.Background(), s.broker, sendTimeout)
	must(err)
	group := groups.SubscriptionGroupTable[s.name("g")]
	group.GroupName = s.plain(group.GroupName)
	s.fact("group", group)
	doomed := s.topic("doomed", 1)
	must(s.admin.DeleteTopic(context.Background(), admin.WithTopicDelete(doomed),
		admin.WithBrokerAddrDelete(s.broker), admin.WithNameSrvAddr([]string{s.namesrv})))
	list, err = s.admin.FetchAllTopicList(context.Background())
	must(err)
	s.fact("deleted topic is listed", contains(list.TopicList, doomed))
}
