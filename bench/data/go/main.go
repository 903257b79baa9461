// Traffic is both ends of the data plane bench: backends that verify nothing of their own, and clients that keep a proxy busy
// and read what its process has used of the CPU at the first and the last counted answer.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	small = 1 << 10
	large = 1 << 20
	// CPUCLOCK_SCHED of <linux/posix-timers.h>: another process's CPU time in nanoseconds.
	processCPUClock = 2
)

func main() {
	if len(os.Args) < 2 {
		fail("usage: traffic serve|load, each with -help")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2:])
	case "load":
		load(os.Args[2:])
	default:
		fail("usage: traffic serve|load, each with -help")
	}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "traffic: "+message)
	os.Exit(1)
}

// serve prints the ports as JSON and ends with its standard input, so also when the bench is killed.
func serve(args []string) {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	certificate := flags.String("certificate", "", "PEM file")
	key := flags.String("key", "", "PEM file")
	flags.Parse(args)
	ports, err := backends(*certificate, *key)
	if err != nil {
		fail(err.Error())
	}
	json.NewEncoder(os.Stdout).Encode(ports)
	io.Copy(io.Discard, os.Stdin)
}

// Plan says what the clients of a run do.
type plan struct {
	kind, address, host, path string
	routes                    int
	answers, failed           atomic.Int64
	stopped                   atomic.Bool
	first                     atomic.Pointer[string]
}

func (p *plan) failure(err error) {
	if p.stopped.Load() {
		return
	}
	p.failed.Add(1)
	text := err.Error()
	p.first.CompareAndSwap(nil, &text)
	time.Sleep(10 * time.Millisecond)
}

// Result is one line of JSON.
type result struct {
	Answers int64   `json:"answers"`
	Failed  int64   `json:"failed"`
	Reason  string  `json:"reason"`
	CPU     float64 `json:"cpu"`
	Seconds float64 `json:"seconds"`
}

func load(args []string) {
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	found := &plan{}
	flags.StringVar(&found.kind, "kind", "h1", "h1, h2, grpc, websocket or stream")
	flags.StringVar(&found.address, "address", "", "of the proxy")
	flags.StringVar(&found.host, "host", "", "that is asked for; of a stream, its SNI")
	flags.StringVar(&found.path, "path", "/", "that is asked for")
	flags.IntVar(&found.routes, "routes", 0, "spread over so many paths, PATH0001 and so on")
	connections := flags.Int("connections", 32, "at the same time")
	warm := flags.Duration("warm", 300*time.Millisecond, "before anything is counted")
	length := flags.Duration("length", time.Second, "that is counted")
	wanted := flags.Int64("answers", 0, "at least so many, in place of warm and length; all are counted, and none is left under way")
	pids := flags.String("pids", "", "of the proxy, with commas")
	flags.Parse(args)
	client, known := clients[found.kind]
	if !known {
		fail("no such kind: " + found.kind)
	}
	processes := numbers(*pids)
	var running sync.WaitGroup
	running.Add(*connections)
	for number := range *connections {
		go func() {
			defer running.Done()
			for !found.stopped.Load() {
				if err := client(found, number); err != nil {
					found.failure(err)
				}
			}
		}()
	}
	if *wanted > 0 {
		for found.answers.Load() < *wanted && found.failed.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		found.stopped.Store(true)
		running.Wait()
		print(found, result{Answers: found.answers.Load(), Failed: found.failed.Load()})
		return
	}
	time.Sleep(*warm)
	answers, failed, used, begun := found.answers.Load(), found.failed.Load(), cpu(processes), time.Now()
	time.Sleep(*length)
	seen := result{
		Answers: found.answers.Load() - answers, Failed: found.failed.Load() - failed,
		CPU: cpu(processes) - used, Seconds: time.Since(begun).Seconds(),
	}
	found.stopped.Store(true)
	print(found, seen)
}

func print(found *plan, seen result) {
	if reason := found.first.Load(); reason != nil {
		seen.Reason = *reason
	}
	json.NewEncoder(os.Stdout).Encode(seen)
}

func numbers(list string) []int {
	var found []int
	for _, text := range strings.Split(list, ",") {
		if number, err := strconv.Atoi(text); err == nil {
			found = append(found, number)
		}
	}
	return found
}

// Cpu returns seconds of all threads of these processes.
func cpu(pids []int) float64 {
	var total float64
	for _, pid := range pids {
		var spent syscall.Timespec
		clock := uintptr(int32(^pid<<3 | processCPUClock))
		if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&spent)), 0); err != 0 {
			fail(fmt.Sprintf("CPU time of process %d: %v", pid, err))
		}
		total += float64(spent.Sec) + float64(spent.Nsec)/1e9
	}
	return total
}
