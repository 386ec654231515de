// Asks Tollgate before some work, waits as Retry-After says, and gives the place back: go run main.go KEY
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

type verdict struct {
	Limit, Ticket, Detail string
	WaitMs                int `json:"wait_ms"`
}

var client = http.Client{Timeout: 2 * time.Second}

func post(path string, body any) (*http.Response, verdict) {
	tollgate, isSet := os.LookupEnv("TOLLGATE_URL")
	if !isSet {
		tollgate = "http://127.0.0.1:8080"
	}
	text, _ := json.Marshal(body)
	answer, err := client.Post(tollgate+path, "application/json", bytes.NewReader(text))
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var read verdict
	if err := json.NewDecoder(answer.Body).Decode(&read); err != nil {
		log.Fatal(err)
	}
	return answer, read
}

func main() {
	answer, said := post("/v1/acquire", map[string]string{"key": os.Args[1]})
	for attempt := 1; attempt < 5 && answer.StatusCode != 200; attempt++ {
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		if err != nil {
			break // without Retry-After waiting does not help
		}
		fmt.Println("denied by", said.Limit, "- waiting", seconds, "s")
		time.Sleep(time.Duration(seconds) * time.Second)
		answer, said = post("/v1/acquire", map[string]string{"key": os.Args[1]})
	}
	if answer.StatusCode != 200 {
		log.Fatal("denied: ", said.Detail)
	}
	time.Sleep(time.Duration(said.WaitMs) * time.Millisecond)
	if said.Ticket != "" { // limits on work in flight give one
		defer post("/v1/release", map[string]string{"ticket": said.Ticket})
	}
	fmt.Println("the work is done")
}
