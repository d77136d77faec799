fedscope demo
