"""What operators see of clients, Sessions and subscriptions: views and bounded searches. Changes nothing."""
