package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	frameLength     = 256
	frameHeadLength = 4
	maskedHead      = frameHeadLength + 4
	// Streams that share an HTTP/2 connection.
	together = 8
)

// A client runs until it fails or the plan is stopped.
var clients = map[string]func(p *plan, number int) error{
	"h1": http1, "h2": http2, "grpc": grpc, "websocket": webSocket, "stream": stream,
}

func dial(p *plan) (net.Conn, *bufio.Reader, error) {
	connection, err := net.DialTimeout("tcp", p.address, 5*time.Second)
	if err != nil {
		return nil, nil, err
	}
	return connection, bufio.NewReaderSize(connection, 64<<10), nil
}

func http1(p *plan, number int) error {
	connection, reader, err := dial(p)
	if err != nil {
		return err
	}
	defer connection.Close()
	for turn := number * 7919; !p.stopped.Load(); turn++ {
		path := p.path
		if p.routes > 0 {
			path = fmt.Sprintf("%s%04d", p.path, turn%p.routes)
		}
		request := "GET " + path + " HTTP/1.1\r\nhost: " + p.host + "\r\n\r\n"
		if _, err := io.WriteString(connection, request); err != nil {
			return err
		}
		length, err := head(reader)
		if err != nil {
			return err
		}
		if _, err := reader.Discard(length); err != nil {
			return err
		}
		p.answers.Add(1)
	}
	return nil
}

// Head reads that of an answer and returns the length of its body.
func head(reader *bufio.Reader) (int, error) {
	status, err := reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) && !bytes.HasPrefix(status, []byte("HTTP/1.1 101")) {
		return 0, errors.New(strings.TrimSpace(string(status)))
	}
	length := 0
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			return length, nil
		}
		if len(line) > 15 && (line[0]|32) == 'c' && bytes.EqualFold(line[:15], []byte("content-length:")) {
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[15:]))); err != nil {
				return 0, err
			}
		}
	}
}

var (
	shared  = map[int]*http.Transport{}
	sharing sync.Mutex
)

// Transport has one connection, which several clients share: HTTP/2 without TLS, as the listener is.
func transport(number int) *http.Transport {
	sharing.Lock()
	defer sharing.Unlock()
	found := shared[number/together]
	if found == nil {
		found = &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
		found.Protocols.SetUnencryptedHTTP2(true)
		shared[number/together] = found
	}
	return found
}

func http2(p *plan, number int) error {
	return ask(p, number, func() *http.Request {
		request, _ := http.NewRequest("GET", "http://"+p.address+p.path, nil)
		return request
	}, func(*http.Response) error { return nil })
}

func grpc(p *plan, number int) error {
	message := append([]byte{0, 0, 0, 1, 0}, make([]byte, 256)...)
	return ask(p, number, func() *http.Request {
		request, _ := http.NewRequest("POST", "http://"+p.address+p.path, bytes.NewReader(message))
		request.Header.Set("Content-Type", "application/grpc")
		request.Header.Set("TE", "trailers")
		return request
	}, func(response *http.Response) error {
		if status := response.Trailer.Get("Grpc-Status"); status != "0" {
			return errors.New("grpc-status " + status + response.Header.Get("Grpc-Status"))
		}
		return nil
	})
}

func ask(p *plan, number int, next func() *http.Request, right func(*http.Response) error) error {
	buffer := make([]byte, 64<<10)
	for !p.stopped.Load() {
		request := next()
		request.Host = p.host
		response, err := transport(number).RoundTrip(request)
		if err != nil {
			return err
		}
		_, err = io.CopyBuffer(io.Discard, response.Body, buffer)
		response.Body.Close()
		if err == nil && response.StatusCode != 200 {
			err = errors.New(response.Status)
		}
		if err == nil {
			err = right(response)
		}
		if err != nil {
			return err
		}
		p.answers.Add(1)
	}
	return nil
}

// FrameHead is that of a binary message of `frameLength` bytes; `mask` is 0x80 from clients.
func frameHead(mask byte) []byte {
	return []byte{0x82, mask | 126, frameLength >> 8, frameLength & 0xff}
}

func webSocket(p *plan, _ int) error {
	connection, reader, err := dial(p)
	if err != nil {
		return err
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nhost: %s\r\nconnection: upgrade\r\nupgrade: websocket\r\n"+
		"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", p.path, p.host)
	if _, err := head(reader); err != nil {
		return err
	}
	message := append(frameHead(0x80), make([]byte, 4+frameLength)...)
	return pingPong(p, connection, reader, message, frameHeadLength+frameLength)
}

func stream(p *plan, _ int) error {
	connection, err := net.DialTimeout("tcp", p.address, 5*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	// The bench measures the proxy's other side; which certificate the listener shows is of no matter here.
	client := tls.Client(connection, &tls.Config{ServerName: p.host, InsecureSkipVerify: true})
	return pingPong(p, client, client, make([]byte, small), small)
}

func pingPong(p *plan, writer io.Writer, reader io.Reader, message []byte, answer int) error {
	buffer := make([]byte, answer)
	for !p.stopped.Load() {
		if _, err := writer.Write(message); err != nil {
			return err
		}
		if _, err := io.ReadFull(reader, buffer); err != nil {
			return err
		}
		p.answers.Add(1)
	}
	return nil
}
