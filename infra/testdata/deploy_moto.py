"""moto, an AWS in one process, for TestDeploy.

It prints its endpoint once it serves, and then a line for each call of a function
that the test is to make. It ends when standard input does, which it does when
the test is gone, even killed. What moto 5.2.5 lacks to create the
stack, or does otherwise than AWS so that nothing could be tested, is mended
below; what it merely ignores is left as it is.
"""

import json
import sys

from moto import settings
from moto.awslambda.models import EventSourceMapping, LambdaBackend, LambdaFunction
from moto.awslambda.utils import get_backend
from moto.cloudformation.custom_model import CustomModel
from moto.cloudwatch.models import cloudwatch_backends
from moto.cloudwatch.utils import make_arn_for_alarm
from moto.core.common_models import CloudFormationModel
from moto.moto_server.threaded_moto_server import ThreadedMotoServer


class StackAlarm(CloudFormationModel):
    """An alarm made by CloudFormation, for which moto has no model."""

    __module__ = "moto.cloudwatch.models"  # moto files a model under its service

    def __init__(self, name, arn):
        self.physical_resource_id = name
        self.arn = arn

    @staticmethod
    def cloudformation_name_type():
        return "AlarmName"

    @staticmethod
    def cloudformation_type():
        return "AWS::CloudWatch::Alarm"

    @classmethod
    def has_cfn_attr(cls, attr):
        return attr == "Arn"

    def get_cfn_attribute(self, attr):
        assert attr == "Arn"
        return self.arn

    @classmethod
    def create_from_cloudformation_json(cls, name, resource, account_id, region, **_):
        alarm = resource["Properties"]
        cloudwatch_backends[account_id][region].put_metric_alarm(
            name=name,
            description=alarm["AlarmDescription"],
            namespace=alarm.get("Namespace"),
            metric_name=alarm.get("MetricName"),
            dimensions=alarm.get("Dimensions", []),
            statistic=alarm.get("Statistic"),
            period=alarm.get("Period"),
            comparison_operator=alarm["ComparisonOperator"],
            threshold=alarm["Threshold"],
            evaluation_periods=alarm["EvaluationPeriods"],
            datapoints_to_alarm=alarm["DatapointsToAlarm"],
            treat_missing_data=alarm["TreatMissingData"],
            alarm_actions=alarm.get("AlarmActions", []),
            ok_actions=alarm.get("OKActions", []),
        )
        return cls(name, make_arn_for_alarm(region, account_id, name))

    @classmethod
    def delete_from_cloudformation_json(cls, name, resource, account_id, region):
        cloudwatch_backends[account_id][region].delete_alarms([name])


def mapping_attribute(mapping, attr):
    """What Fn::GetAtt gives of an event source mapping."""
    assert attr == "Id"
    return mapping.uuid


EventSourceMapping.get_cfn_attribute = mapping_attribute

# moto would run the function in Docker at every write to the table, and then
# empty the stream. The test reads the stream and runs the function itself.
LambdaBackend.send_dynamodb_items = lambda self, function_arn, items, source: None



events = {}  # the last one of each custom resource, by logical id


def ask_for_call(function, body, *_):
    """Has the test call a function, which moto would do in Docker."""
    code = "%s/%s" % (function.code["S3Bucket"], function.code["S3Key"])
    event = json.loads(body)
    events[event["LogicalResourceId"]] = event
    print(json.dumps({"Code": code, "Environment": function.environment_vars, "Event": event}), flush=True)
    return ""


def update_custom(original_resource, new_resource_name, cloudformation_json, account_id, region_name):
    """Has a custom resource updated, which moto leaves out."""
    new = cloudformation_json["Properties"]
    before = events[original_resource.logical_id]
    event = dict(
        before,
        RequestType="Update",
        PhysicalResourceId=original_resource.physical_resource_id,
        ResourceProperties=new,
        OldResourceProperties=before["ResourceProperties"],
    )
    get_backend(account_id, region_name).get_function(new["ServiceToken"]).invoke(json.dumps(event))
    return original_resource


LambdaFunction.invoke = ask_for_call
CustomModel.update_from_cloudformation_json = staticmethod(update_custom)

server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
# Where custom resources answer, which moto thinks is seen from a container.
settings.moto_server_host = lambda: "http://" + host
settings.moto_server_port = lambda: str(port)
print("http://%s:%d" % (host, port), flush=True)
sys.stdin.read()
