from kafka_actors.admin.machines.advice import refusal


def test_an_error_says_what_to_do_after_what_the_broker_said() -> None:
    error = refusal(54, "No Authorizer is configured.", request="DescribeAcls")
    assert str(error) == (
        "SECURITY_DISABLED (54) in answer to DescribeAcls: No Authorizer is configured: "
        "set authorizer.class.name on the brokers and controllers"
    )
    silent = refusal(73, None, request="DeleteTopics", topic="orders")
    assert str(silent).endswith("for orders: set delete.topic.enable=true on the brokers and controllers")


def test_what_the_broker_explains_itself_stays() -> None:
    error = refusal(37, "The topic currently has 3 partition(s).", request="CreatePartitions", topic="t")
    assert str(error).endswith("for t: The topic currently has 3 partition(s).")
    assert refusal(0, None, request="CreatePartitions") is None
