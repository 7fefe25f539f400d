// Sends three messages and receives them again, with RocketMQ's own Go client.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	rlog.SetLogLevel("error")
	namesrv := primitive.NamesrvAddr{"127.0.0.1:9876"}
	if len(os.Args) > 1 {
		namesrv = primitive.NamesrvAddr{os.Args[1]}
	}

	send, err := rocketmq.NewProducer(producer.WithNameServer(namesrv), producer.WithGroupName("first_producer"))
	check(err)
	check(send.Start())
	for i := 1; i <= 3; i++ {
		message := primitive.NewMessage("FirstTopicGo", []byte(fmt.Sprintf("Hello OrbitMQ %d", i)))
		_, err := send.SendSync(context.Background(), message)
		check(err)
		fmt.Println("sent")
	}

	received := make(chan string, 3)
	receive, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(namesrv),
		consumer.WithGroupName("first_consumer_go"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	check(err)
	check(receive.Subscribe("FirstTopicGo", consumer.MessageSelector{},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			for _, message := range messages {
				received <- string(message.Body)
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(receive.Start())
	for i := 0; i < 3; i++ {
		select {
		case body := <-received:
			fmt.Println("received", body)
		case <-time.After(60 * time.Second):
			os.Exit(1)
		}
	}
	_ = receive.Shutdown()
	_ = send.Shutdown()
}
